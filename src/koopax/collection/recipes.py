"""The paper's nine datasets, collected on the spot from the shipped policies.

- `expert`: rollouts of the expert policy with sampled actions.
- `medium-expert`: half of the steps from the medium policy, half from the expert.
- `full-replay`: what a training run would have seen: random actions, then the ladder of policies from bad to good, with
  exploration noise, in equal parts. A recorded training run (`from_scratch`) is closer to a replay buffer but takes
  hours.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koopax._atomic import new_folder
from koopax._cache import cache_folder
from koopax._errors import KoopaxError, unknown_name
from koopax.collection.collecting import collect_stages
from koopax.collection.policies import WEIGHTS, shipped_policies
from koopax.collection.rollouts import Stage
from koopax.data.episodes import Episodes
from koopax.data.sources import folder

DEFAULT_STEPS = 1_000_000
_VERSION = 2
_REPLAY_NOISE = 0.1
_ENVIRONMENTS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}
_KINDS = {
    "expert": "rollouts of the expert",
    "medium-expert": "half from the medium policy, half from the expert",
    "full-replay": "random actions, then the ladder of policies with exploration noise",
}
_FILE = re.compile(r"steps(?P<steps>\d+)-seed(?P<seed>\d+)-(?P<key>[0-9a-f]+)\.episodes")

Recorder = Callable[[str, int, int], Episodes]
"""(environment id, steps, seed) ↦ every step of a training run, as episodes."""


@dataclass(frozen=True)
class Recipe:
    """How one of our datasets is made."""

    name: str
    """For example `koopax/hopper/expert-v0`."""
    environment: str
    """Gymnasium id."""
    robot: str
    """Prefix of the shipped policies' names."""
    kind: str
    """`expert`, `medium-expert` or `full-replay`."""

    def stages(self, steps: int) -> list[Stage]:
        """What to collect for this number of steps."""
        if self.kind == "expert":
            return [Stage(self._policy("expert"), steps, source="expert")]
        if self.kind == "medium-expert":
            return [
                Stage(self._policy("medium"), steps // 2, source="medium"),
                Stage(self._policy("expert"), steps - steps // 2, source="expert"),
            ]
        rungs = sorted((p for p in shipped_policies() if p.startswith(f"{self.robot}-ladder-")), key=_rung)
        policies = ["random", *(rungs or [self._policy("ladder-1")])]
        bounds = [steps * i // len(policies) for i in range(len(policies) + 1)]
        return [
            Stage(policy, bounds[i + 1] - bounds[i], _REPLAY_NOISE if i else 0.0, policy.removeprefix(f"{self.robot}-"))
            for i, policy in enumerate(policies)
            if bounds[i + 1] > bounds[i]
        ]

    def _policy(self, label: str) -> str:
        name = f"{self.robot}-{label}"
        if name not in shipped_policies():
            raise KoopaxError(
                f"{self.name!r} needs the policy {name!r}, which this installation does not have: "
                "reinstall koopax, or train and export it with `koopax agent train sac`."
            )
        return name


def _rung(policy: str) -> int:
    return int(policy.rsplit("-", 1)[1])


RECIPES = {
    name: Recipe(name, environment, robot, kind)
    for robot, environment in _ENVIRONMENTS.items()
    for kind in _KINDS
    for name in [f"koopax/{robot}/{kind}-v0"]
}


def make_dataset(
    name: str,
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    from_scratch: bool = False,
    record: Recorder | None = None,
    workers: int | None = None,
    progress: bool = True,
    force: bool = False,
) -> Path:
    """Make one of our datasets unless it is there and whole, and return its folder (for `koopax.data.load`).

    The folder lies under `KOOPAX_DATA` (or `~/.cache/koopax`) and is named by steps, seed and a hash of the policies'
    weights. The same arguments give the same bytes, also on another machine with the same MuJoCo. Processes that make
    the same set wait for one another.

    Args:
        name: for example `koopax/hopper/expert-v0`; see `list_datasets`.
        steps: exact number of steps.
        seed: of resets, actions and noise.
        from_scratch: for `full-replay`: record a training run with `record` in place of the ladder of policies.
        record: trains an agent and returns every step it took, as episodes; given by the caller because agents are
            built on this package.
        workers: processes; by default one per core.
        progress: show a bar on standard error.
        force: make it again even if it is there.
    """
    from filelock import FileLock

    recipe = _recipe(name)
    if steps < 1:
        raise KoopaxError(f"{steps} steps are nothing to make: give at least 1.")
    if from_scratch and recipe.kind != "full-replay":
        raise KoopaxError(f"{name!r} is not a training run: only the full-replay sets can be recorded from scratch.")
    if from_scratch and record is None:
        raise KoopaxError(f"a training run needs an agent: use the command `koopax data make {name} --from-scratch`.")
    path = _path(recipe, steps, seed, from_scratch)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        lock.acquire()
    except OSError as error:
        raise KoopaxError(
            f"datasets cannot be kept in {str(cache_folder())!r} ({error.strerror}): set KOOPAX_DATA to another folder."
        ) from error
    try:
        if force or not folder.is_intact(path):
            if from_scratch and record is not None:
                episodes = record(recipe.environment, steps, seed)
            else:
                stages = recipe.stages(steps)
                episodes = collect_stages(recipe.environment, stages, seed=seed, workers=workers, progress=progress)
            if episodes.metadata.extra.get("interrupted"):
                raise KeyboardInterrupt
            with new_folder(path, overwrite=True) as temporary:
                folder.write(episodes, temporary)
    finally:
        lock.release()
    return path


def find_or_make_dataset(name: str, *, steps: int | None = None, seed: int = 0, **options: Any) -> Path:
    """The folder of one of our datasets; without `steps`, the largest that was made with this seed.

    If there is none, it is made, with a million steps by default; `options` are those of `make_dataset`.
    """
    recipe = _recipe(name)
    made = [int(m["steps"]) for m in _made(recipe) if m["seed"] == seed and m["current"]]
    if steps is None:
        steps = max(made, default=DEFAULT_STEPS)
    return make_dataset(name, steps=steps, seed=seed, **options)


def list_datasets() -> list[dict[str, Any]]:
    """Every recipe: its name, environment, kind and description, and the sets made of it (path, steps, seed)."""
    return [
        {
            "name": recipe.name,
            "environment": recipe.environment,
            "kind": recipe.kind,
            "description": _KINDS[recipe.kind],
            "made": _made(recipe),
        }
        for recipe in RECIPES.values()
    ]


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise unknown_name("dataset", name, list(RECIPES))
    return RECIPES[name]


def _made(recipe: Recipe) -> list[dict[str, Any]]:
    found = []
    for path in sorted((cache_folder() / recipe.name).glob("*.episodes")):
        match = _FILE.fullmatch(path.name)
        if match and folder.is_folder(path):
            steps, seed = int(match["steps"]), int(match["seed"])
            current = _has_policies(recipe) and _key(recipe, steps, from_scratch=False) == match["key"]
            found.append({"path": str(path), "steps": steps, "seed": seed, "current": current})
    return found


def _has_policies(recipe: Recipe) -> bool:
    try:
        recipe.stages(1_000)
    except KoopaxError:
        return False
    return True


def _path(recipe: Recipe, steps: int, seed: int, from_scratch: bool) -> Path:
    key = _key(recipe, steps, from_scratch)
    return cache_folder() / recipe.name / f"steps{steps}-seed{seed}-{key}.episodes"


def _key(recipe: Recipe, steps: int, from_scratch: bool) -> str:
    """Hash of what else the episodes depend on: policies, their weights and noise."""
    digest = hashlib.sha256(f"{_VERSION} {recipe.environment} {'recorded' if from_scratch else ''}".encode())
    if not from_scratch:
        for stage in recipe.stages(steps):
            digest.update(json.dumps([stage.policy, stage.steps, stage.noise]).encode())
            weights = WEIGHTS / f"{stage.policy}.npz"
            digest.update(weights.read_bytes() if weights.exists() else b"")
    return digest.hexdigest()[:12]
