"""Policies that collection can run: small NumPy networks, shipped or from a file, and functions.

A policy maps a batch of observations [N, S] to a batch of actions [N, A] in the environment's own bounds.
Nothing here needs JAX, so worker processes start fast.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError, unknown_name
from koopax._imports import import_here
from koopax._npz import read_npz
from koopax._untrusted import one_line

LOG_STD_RANGE = (-5.0, 2.0)
"""Bounds of a Gaussian actor's log-deviation, reached through tanh."""

OBSERVATION_CLIP = 10.0
"""Normalised observations are clipped to ± this."""

WEIGHTS = Path(__file__).parent / "weights"
"""Where the shipped policies are."""


@runtime_checkable
class Policy(Protocol):
    """Anything that can choose actions for a batch of observations."""

    def act(self, observations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Actions [N, A] for observations [N, S], in the environment's bounds."""
        ...


@dataclasses.dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions between the bounds."""

    low: np.ndarray
    high: np.ndarray

    def act(self, observations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Actions [N, A], independent of the observations."""
        return rng.uniform(self.low, self.high, (len(observations), len(self.low))).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class FunctionPolicy:
    """A user's `function(observations [N, S], rng) -> actions [N, A]`."""

    function: Callable[[np.ndarray, np.random.Generator], np.ndarray]

    def act(self, observations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Whatever the function returns, as float32."""
        return np.asarray(self.function(observations, rng), np.float32)


@dataclasses.dataclass(frozen=True)
class GaussianPolicy:
    """A tanh-squashed Gaussian actor, as SAC trains it.

    x = clip((s − mean) / deviation, ±10); hidden layers x ← relu(x W + b); (m, ρ) = x W + b;
    u = m + σ ε with log σ = the tanh of ρ mapped onto `LOG_STD_RANGE`, or u = m if `deterministic`;
    a = low + (high − low) (tanh u + 1) / 2.

    All of it in float64, and the action rounded to float32: processors add up products in different orders, and what
    is left of that after the rounding would grow along an episode to another one.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    observation_mean: np.ndarray
    observation_deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    deterministic: bool = False
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    def act(self, observations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Actions [N, A]; the rng is not touched if the policy is deterministic."""
        seen = np.asarray(observations, np.float32).astype(float)
        x = (seen - self.observation_mean) / self.observation_deviation
        x = np.clip(x, -OBSERVATION_CLIP, OBSERVATION_CLIP)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0)
        mean, raw = np.split(x @ self.weights[-1] + self.biases[-1], 2, axis=-1)
        if not self.deterministic:
            low, high = LOG_STD_RANGE
            log_std = low + 0.5 * (high - low) * (np.tanh(raw) + 1)
            mean = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        return (self.low + 0.5 * (self.high - self.low) * (np.tanh(mean) + 1)).astype(np.float32)

    def with_deterministic(self, deterministic: bool) -> "GaussianPolicy":
        """The same network, taking its mean action or sampling."""
        return dataclasses.replace(self, deterministic=deterministic)

    def save(self, path: str | os.PathLike) -> None:
        """Write a float16 `.npz` with the provenance as a JSON string; atomically, and the same bytes every time."""
        exact = ("observation_mean", "observation_deviation", "low", "high")
        arrays: dict[str, np.ndarray] = {name: np.asarray(getattr(self, name), np.float32) for name in exact}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays[f"weight_{i}"] = weight.astype(np.float16)
            arrays[f"bias_{i}"] = bias.astype(np.float16)
        with new_file(Path(path), overwrite=True) as temporary, open(temporary, "wb") as file:
            np.savez(file, provenance=np.array(json.dumps(self.provenance)), **arrays)  # type: ignore[arg-type]


def load_policy(path: str | os.PathLike) -> GaussianPolicy:
    """Read what `GaussianPolicy.save` wrote; nothing in the file can run."""
    try:
        arrays = read_npz(Path(path))
        provenance = json.loads(str(arrays.pop("provenance")))
        arrays = {name: array.astype(float) for name, array in arrays.items()}
        layers = sum(name.startswith("weight_") for name in arrays)
        policy = GaussianPolicy(
            weights=tuple(arrays[f"weight_{i}"] for i in range(layers)),
            biases=tuple(arrays[f"bias_{i}"] for i in range(layers)),
            observation_mean=arrays["observation_mean"],
            observation_deviation=arrays["observation_deviation"],
            low=arrays["low"],
            high=arrays["high"],
            provenance=provenance,
        )
        _check_shapes(policy)
        return policy
    except FileNotFoundError:
        raise KoopaxError(f"there is no policy file {str(path)!r}; give the path of a policy's .npz.") from None
    except Exception as error:  # whatever damage does to an archive
        raise KoopaxError(f"{str(path)!r} is not a policy that koopax wrote ({one_line(error)}).") from error


def _check_shapes(policy: GaussianPolicy) -> None:
    """Raise ValueError unless the layers fit onto one another, the observations and the actions."""
    width = policy.observation_mean.shape
    for weight, bias in zip(policy.weights, policy.biases, strict=True):
        if weight.shape != (*width, *bias.shape) or weight.ndim != 2:
            raise ValueError(f"a layer of shape {weight.shape} follows {width}")
        width = bias.shape
    if policy.observation_deviation.shape != policy.observation_mean.shape or policy.low.shape != policy.high.shape:
        raise ValueError("its bounds or scales have different sizes")
    if width != (2 * policy.low.size,) or policy.low.ndim != 1:
        raise ValueError(f"its last layer has {width} outputs for {policy.low.shape} actions")


def shipped_policies() -> list[str]:
    """Names of the policies inside the package, like `halfcheetah-expert` or `hopper-ladder-3`."""
    return sorted(path.stem for path in WEIGHTS.glob("*.npz"))


def resolve_policy(name: str, low: np.ndarray, high: np.ndarray) -> Policy:
    """The policy of that name for an environment with these action bounds.

    `random`, a shipped name, the path of an `.npz`, or `module:function`, whose function takes
    (observations [N, S], rng) and returns actions [N, A].
    """
    if name == "random":
        return RandomPolicy(np.asarray(low, np.float32), np.asarray(high, np.float32))
    if name.endswith(".npz"):
        policy = load_policy(name)
    elif ":" in name:
        return FunctionPolicy(_import_function(name))
    elif name in (shipped := shipped_policies()):
        policy = load_policy(WEIGHTS / f"{name}.npz")
    else:
        raise unknown_name("policy", name, ["random", *shipped, "FILE.npz", "module:function"])
    if policy.low.shape != np.shape(low):
        raise KoopaxError(
            f"policy {name!r} has {len(policy.low)} action components but the environment has {len(low)}; "
            "choose a policy that was trained on it."
        )
    return policy


def _import_function(name: str) -> Callable:
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(import_here(module_name), attribute)
    except Exception as error:  # whatever the user's module raises
        raise KoopaxError(
            f"policy {name!r} can't be imported ({one_line(error)}); give it as module:function."
        ) from error
    if not callable(function):
        raise KoopaxError(f"policy {name!r} is not a function; give it as module:function.")
    return function
