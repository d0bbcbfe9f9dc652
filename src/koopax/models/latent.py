"""The interchangeable part: a latent dynamics core, and the registry that builds one by name."""

import abc
from collections.abc import Iterable
from importlib import import_module
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, Int, PRNGKeyArray, PyTree


class Memory(eqx.Module):
    """All that is needed to go on, of a core that remembers more than its latent: the latent and what is beneath it."""

    latent: eqx.AbstractVar[Float[Array, " latent"]]


# Where a rollout starts: at a latent, which begins a new sequence, or at a memory, which goes on with one.
Start: TypeAlias = Float[Array, " latent"] | Memory


class CandidateStart(eqx.Module):
    """Where all candidates of a plan start, and what the core has computed of it once for all of them."""

    latent: Float[Array, " latent"]
    shared: PyTree = None


class LatentDynamics(eqx.Module):
    """Moves a latent forward under actions. Written for one example: use `jax.vmap` for batches.

    `rollout` over T steps equals T times `step`, and two rollouts in a row equal one. Koopman, MLP and GRU are
    Markovian in their latent: they start at latents and step to latents. The others are a `SequenceDynamics`.
    """

    latent_size: eqx.AbstractVar[int]
    action_size: eqx.AbstractVar[int]

    @property
    def predicted_size(self) -> int:
        """How many of a latent's leading components the core predicts; the rest is what it holds on to."""
        return self.latent_size

    @property
    def remembered_actions(self) -> int:
        """How many past actions a latent holds as they were; none, except for a core with an action history."""
        return 0

    @property
    def linear_in_actions(self) -> bool:
        """Whether latents are o(x_0) + J (a_0, …, a_{T−1}) with the same J everywhere; not, unless a core says so."""
        return False

    def known_actions(self, latent: Float[Array, " latent"]) -> Float[Array, "remembered action"]:
        """The past actions that a latent holds, oldest first."""
        return jnp.zeros((0, self.action_size), latent.dtype)

    def with_known(
        self, latent: Float[Array, " latent"], past_actions: Float[Array, "past action"]
    ) -> Float[Array, " latent"]:
        """The latent with the actions just taken in the place of what it holds of them, oldest first.

        An encoder sees a state and can only guess them. Those older than the core remembers don't count; where there
        are fewer, or one is NaN because it is not known, the latent keeps what it holds.
        """
        del past_actions
        return latent

    @abc.abstractmethod
    def rollout(
        self,
        latent: Start,
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """The latents after each of the T actions, x_1 … x_T, from x_0.

        `durations` gives the length of each step in nominal steps, for irregularly sampled data; the default is 1.
        """

    @abc.abstractmethod
    def step(
        self,
        latent: Start,
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Start:
        """The latent, or the memory, after one action."""

    def rollout_every(
        self,
        latents: Float[Array, "batch latent"],
        actions: Float[Array, "time batch action"],
        durations: Float[Array, "time batch"] | None = None,
        *,
        stride: int,
        first: Int[Array, ""],
        remat_steps: int | None = None,
    ) -> Float[Array, "steps batch latent"]:
        """For a whole batch: the latents after the actions number first, first + stride, …, counted from 0.

        There are ⌈T / stride⌉ of them, wherever in [0, stride) the first one is; one that falls behind the last action
        is of no meaning. Training looks at some steps of a window only, and a linear core need not visit the others.
        With `remat_steps` (rematerialisation), a gradient keeps what lies beneath the latents for that many steps at a
        time and computes it again for the others: less memory, more work.
        """
        if remat_steps is None or remat_steps >= actions.shape[0]:
            rolled = self._roll_batch(latents, actions, durations)
        else:
            rolled = self._roll_rematerialised(latents, actions, durations, remat_steps)
        return rolled if stride == 1 else rolled[steps_every(actions.shape[0], stride, first)]

    def start_candidates(self, latent: Float[Array, " latent"], horizon: int) -> CandidateStart:
        """What candidates of up to `horizon` steps from one latent share, for `rollout_candidates`.

        A planner asks once per decision, and then for the latents of many candidates, several times.
        """
        del horizon
        return CandidateStart(latent)

    def rollout_candidates(
        self, start: CandidateStart, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate latent"]:
        """x_0 … x_T of every candidate. The default rolls them out side by side; a linear core shares more."""
        latents = jax.vmap(self.rollout, in_axes=(None, 1), out_axes=1)(start.latent, actions)
        return jnp.concatenate([jnp.broadcast_to(start.latent, (1, *latents.shape[1:])), latents])

    def _roll_batch(self, latents: Array, actions: Array, durations: Array | None) -> Array:
        over_batch = (0, 1, None if durations is None else 1)
        return jax.vmap(self.rollout, in_axes=over_batch, out_axes=1)(latents, actions, durations)

    def _roll_rematerialised(self, latents: Array, actions: Array, durations: Array | None, remat_steps: int) -> Array:
        if isinstance(self, SequenceDynamics):
            raise KoopaxError(
                f"{type(self).__name__} sees a window as a whole: leave remat_steps out, or use koopman, mlp or gru."
            )

        @jax.checkpoint
        def roll(now: Array, inputs: tuple[Array, Array | None]) -> tuple[Array, Array]:
            rolled = self._roll_batch(now, *inputs)
            return rolled[-1], rolled

        _, rolled = jax.lax.scan(roll, latents, in_chunks((actions, durations), remat_steps))
        return rolled.reshape(-1, *rolled.shape[2:])[: actions.shape[0]]


class SequenceDynamics(LatentDynamics):
    """A core that remembers more than its latent: it starts at a latent or at a `Memory`, and steps to a `Memory`.

    A latent that such a core put out does not continue its rollout: as a start, it begins a new sequence.
    """

    @abc.abstractmethod
    def begin(self, latent: Float[Array, " latent"]) -> Memory:
        """The memory of a sequence that holds its start and no action yet."""


def steps_every(horizon: int, stride: int, first: Int[Array, ""]) -> Int[Array, " steps"]:
    """first, first + stride, …: ⌈horizon / stride⌉ steps, those behind the horizon clipped to its last one."""
    return jnp.minimum(first + stride * jnp.arange(-(-horizon // stride)), horizon - 1)


def in_chunks(tree: PyTree, size: int) -> PyTree:
    """Arrays `[time, …]` as `[chunk, size, …]`, the last chunk filled up with zeros."""

    def cut(array: Array) -> Array:
        count = -(-len(array) // size)
        padding = [(0, count * size - len(array))] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, padding).reshape(count, size, *array.shape[1:])

    return jax.tree.map(cut, tree)


def latent_of(start: Start) -> Float[Array, " latent"]:
    """The latent of a start, whichever kind it is."""
    return start.latent if isinstance(start, Memory) else start


def begin(core: LatentDynamics, start: Start) -> Start:
    """`start` in the form in which the core's `step` returns it, which is what a scan over steps has to carry."""
    if isinstance(core, SequenceDynamics) and not isinstance(start, Memory):
        return core.begin(start)
    return start


def advance(
    core: LatentDynamics,
    start: Start,
    actions: Float[Array, "time action"],
    durations: Float[Array, " time"] | None = None,
) -> Start:
    """What all of the actions lead to: the start from which a second rollout continues a first one."""

    def step(now: Start, inputs: tuple[Array, Array | None]) -> tuple[Start, None]:
        return core.step(now, *inputs), None

    return jax.lax.scan(step, begin(core, start), (actions, durations))[0]


# Where each core lives. Imported when asked for, so that one core's dependencies burden no other.
CORES: dict[str, str] = {
    "koopman": "koopax.models.koopman:KoopmanCore",
    "mlp": "koopax.models.mlp:MLPCore",
    "gru": "koopax.models.gru:GRUCore",
    "transformer": "koopax.models.transformer:TransformerCore",
    "dssm": "koopax.models.dssm:DSSMCore",
    "linear": "koopax.models.linear:LinearCore",
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
    return kind(latent_size, action_size, key=key, **options)  # pyright: ignore[reportCallIssue]  (a convention)


def check_options(owner: str, kind: type, options: dict, *, also: Iterable[str] = ()) -> None:
    """Refuse options that a class's constructor does not take, naming those it does, and `also` those of its owner."""
    import inspect

    parameters = inspect.signature(kind.__init__).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "key"] + list(also)
    for option in options:
        if option not in known:
            raise KoopaxError(f"{owner} has no option {option!r}: it takes {', '.join(sorted(known)) or 'none'}.")
