"""The interchangeable part: a latent dynamics core, and the registry that builds one by name."""

import abc
from importlib import import_module

import equinox as eqx

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray


class LatentDynamics(eqx.Module):
    """Moves a latent forward under actions. Written for one example: use `jax.vmap` for batches.

    A core is Markovian in its latent: `rollout` over T steps equals T times `step`, and two rollouts in a row equal one.
    """

    latent_size: eqx.AbstractVar[int]
    action_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def rollout(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """The latents after each of the T actions, x_1 … x_T, from x_0.

        `durations` gives the length of each step in nominal steps, for irregularly sampled data; the default is 1.
        """

    @abc.abstractmethod
    def step(
        self,
        latent: Float[Array, " latent"],
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Float[Array, " latent"]:
        """The latent after one action."""


# Where each core lives. Imported when asked for, so that one core's dependencies burden no other.
CORES: dict[str, str] = {
    "koopman": "koopax.models.koopman:KoopmanCore",
}


def core_class(name: str) -> type[LatentDynamics]:
    """The class registered under that name."""
    if name not in CORES:
        raise unknown_name("model", name, list(CORES))
    module, attribute = CORES[name].split(":")
    return getattr(import_module(module), attribute)


def make_core(name: str, latent_size: int, action_size: int, *, key: PRNGKeyArray, **options) -> LatentDynamics:
    """Build a core by name; `options` are the keyword arguments of its class."""
    kind = core_class(name)
    check_options(f"model {name!r}", kind, options)
    return kind(latent_size, action_size, key=key, **options)


def check_options(owner: str, kind: type, options: dict) -> None:
    """Refuse options that a class's constructor does not take, naming those it does."""
    import inspect

    parameters = inspect.signature(kind.__init__).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "key"]
    for option in options:
        if option not in known:
            raise KoopaxError(f"{owner} has no option {option!r}: it takes {', '.join(sorted(known)) or 'none'}.")
