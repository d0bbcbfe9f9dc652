"""One way to make an environment, whatever library it comes from."""

import difflib
import importlib.util
import logging
import os
from functools import cache
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax._imports import import_here
from koopax.envs.plants import register

INSTALL = "pip install 'koopax[mujoco]'"


def make(
    name: str, *, seed: int | None = None, trusted: bool = True, unit_actions: bool = False, **options: Any
) -> Any:
    """A `gymnasium.Env` with flat float32 observations [S] and float32 actions [A] in the env's own bounds.

    The name is any Gymnasium id (`HalfCheetah-v5`), a dm_control id (`dm_control/cheetah-run-v0`), the short name of
    a dm_control task (`cheetah-run`), or `module:Id` for an id that a module on the path or in the working directory
    registers, or one of the small plants of `koopax.envs.plants` (`koopax/CartPole-v0`). A name that was not typed by
    the user but read from data is not `trusted`: it may not import a module.
    With a seed, the first `reset()` uses it. With `unit_actions`, actions are in [−1, 1]ᴬ, which is what agents see,
    and `env.action(a)` gives those in the environment's own bounds.
    Options go to `gymnasium.make`; `render_mode="rgb_array"` is what pixels and videos need.
    """
    gymnasium = _gymnasium(name)
    if not trusted:
        refuse_module(name, "the data")
    from koopax.envs.flat import FlatObservations

    identifier = _resolve(name, gymnasium)
    _log_mujoco_warnings()
    try:
        env = gymnasium.make(identifier, **options)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise KoopaxError(f"environment {name!r} needs more packages ({error}); install them: {INSTALL}.") from None
    if not isinstance(env.action_space, gymnasium.spaces.Box) or len(env.action_space.shape) != 1:
        env.close()
        raise KoopaxError(
            f"environment {name!r} has actions {env.action_space}; choose one with a vector of continuous actions."
        )
    env = FlatObservations(env)
    if seed is not None:
        env.seed_first_reset(seed)
    return _with_unit_actions(name, env) if unit_actions else env


def refuse_module(name: str, who: str, remedy: str = "") -> None:
    """Raise if the name of an environment that `who` gives, rather than the user, would import a module."""
    if ":" in name:
        raise KoopaxError(
            f"{who} names the environment {name!r}, but only a name that you type may import a module"
            f"{remedy and ': ' + remedy}."
        )


def _with_unit_actions(name: str, env: Any) -> Any:
    from gymnasium.wrappers import RescaleAction

    if not all(np.isfinite(bound).all() for bound in action_bounds(env)):
        env.close()
        raise KoopaxError(f"the actions of {name!r} have no bounds: choose an environment with some.")
    return RescaleAction(env, np.float32(-1), np.float32(1))


@cache
def _log_mujoco_warnings() -> None:
    """Send MuJoCo's warnings to the logger `koopax.mujoco`: it writes a file into the working directory otherwise."""
    if importlib.util.find_spec("mujoco"):
        try:
            import mujoco
        except Exception as error:  # a missing graphics library ends in anything, even an AttributeError of None
            raise KoopaxError(
                f"MuJoCo can't be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r}, a graphics library that "
                "is not installed or not known: use egl, with the Debian packages libegl1 and libgl1-mesa-dri."
            ) from error

        mujoco.set_mju_user_warning(logging.getLogger("koopax.mujoco").info)  # type: ignore[attr-defined]


def _gymnasium(name: str) -> Any:
    if importlib.util.find_spec("gymnasium") is None:
        raise KoopaxError(f"environment {name!r} needs Gymnasium; install it: {INSTALL}.")
    import gymnasium

    return gymnasium


def _resolve(name: str, gymnasium: Any) -> str:
    """The registered id behind a name."""
    registry = gymnasium.registry
    if name.startswith("koopax/"):
        register()
    if name in registry:
        return name
    if ":" in name:
        return _registered_by_module(name, registry)
    if importlib.util.find_spec("shimmy") and importlib.util.find_spec("dm_control"):
        import shimmy

        gymnasium.register_envs(shimmy)
    elif name.startswith("dm_control/"):
        raise KoopaxError(f"environment {name!r} needs Shimmy and dm_control; install them: {INSTALL}.")
    for candidate in (name, f"dm_control/{name}-v0", f"dm_control/{name}"):
        if candidate in registry:
            return candidate
    short = {known.removeprefix("dm_control/").removesuffix("-v0") for known in registry if known.startswith("dm_")}
    close = difflib.get_close_matches(name, [*registry, *short], n=1)
    hint = (
        f"did you mean {close[0]!r}?"
        if close
        else "give a Gymnasium id like 'HalfCheetah-v5' or a dm_control task like 'cheetah-run'."
    )
    raise KoopaxError(f"unknown environment {name!r}: {hint}")


def _registered_by_module(name: str, registry: Any) -> str:
    """`module:Id` as it is, which is what Gymnasium takes, once the module has registered the id."""
    module, _, identifier = name.partition(":")
    try:
        import_here(module)
    except Exception as error:  # whatever the user's module raises
        raise KoopaxError(
            f"the module of environment {name!r} can't be imported ({type(error).__name__}: {error}): "
            "give one on the path or in this folder."
        ) from error
    if identifier not in registry:
        raise KoopaxError(f"the module {module!r} registers no environment {identifier!r}: check the name after ':'.")
    return name


def action_bounds(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest action [A] of an environment from `make`."""
    return np.asarray(env.action_space.low, np.float32), np.asarray(env.action_space.high, np.float32)
