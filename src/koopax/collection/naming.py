"""Names and units of an environment's states and actions, where the environment knows them."""

from typing import Any, NamedTuple


class ComponentNames(NamedTuple):
    """One name per state and action component, or none; and the units of some of them."""

    state: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    units: dict[str, str] = {}  # noqa: RUF012 - never changed


def component_names(env: Any) -> ComponentNames:
    """What can be told of an environment from `koopax.envs.make`.

    A Gymnasium MuJoCo environment whose observation is joint positions, then joint velocities, names them by its
    joints; a dict of observations names them by its keys.
    """
    inner = env.unwrapped
    structure = getattr(inner, "observation_structure", None)
    if structure is not None and set(structure) <= {"skipped_qpos", "qpos", "qvel"}:
        return _joints(inner.model, structure.get("skipped_qpos") or 0)
    spaces = getattr(inner.observation_space, "spaces", None)
    if isinstance(spaces, dict):
        sizes = {key: _size(space) for key, space in spaces.items()}
        return ComponentNames(
            tuple(f"{key}_{i}" if size > 1 else key for key, size in sizes.items() for i in range(size))
        )
    return ComponentNames()


def _size(space: Any) -> int:
    size = 1
    for axis in space.shape or ():
        size *= axis
    return size


def _joints(model: Any, skipped: int) -> ComponentNames:
    slide, hinge = 2, 3
    joints = [model.joint(i) for i in range(model.njnt)]
    kinds = [int(joint.type[0]) for joint in joints]
    if not set(kinds) <= {slide, hinge}:
        return ComponentNames()
    names = [joint.name for joint in joints]
    units: dict[str, str] = {}
    for name, kind in zip(names, kinds, strict=True):
        units[name] = "m" if kind == slide else "rad"
        units[f"{name}_velocity"] = "m/s" if kind == slide else "rad/s"
    state = (*names[skipped:], *(f"{name}_velocity" for name in names))
    driven = [model.joint(model.actuator_trnid[i, 0]).name for i in range(model.nu)]
    action = tuple(f"{name}_control" for name in driven)
    return ComponentNames(state, action, {name: unit for name, unit in units.items() if name in state})
