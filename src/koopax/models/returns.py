"""A rollout that returns to the encoder on the way: parallel within a segment, sequential from one to the next."""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.models.encoding import Encoding
from koopax.models.history import Past
from koopax.models.latent import LatentDynamics, Start, latent_of


def unroll(
    model: Encoding,
    start: Start,
    past: Past | None,
    actions: Float[Array, "time action"],
    durations: Float[Array, " time"] | None,
    every: int | None,
) -> tuple[Float[Array, "time latent"], Float[Array, "time latent"]]:
    """The latents before and after each action; the model encodes again after every so many steps, or never."""
    core = model.core
    if every is None or every >= actions.shape[0]:
        return _segment(core, start, actions, durations)
    whole, rest = divmod(actions.shape[0] - every, every)

    def part(first: int, count: int) -> tuple[Array, Array | None]:
        chosen = slice(first, first + count)
        return actions[chosen], None if durations is None else durations[chosen]

    def segment(
        carried: tuple[Array, Past | None], now: tuple[Array, Array | None]
    ) -> tuple[tuple[Array, Past | None], tuple[Array, Array]]:
        latent, past = carried
        before, after = _segment(core, model.reencode(latent, past), *now)
        return (after[-1], model.remember(past, after, now[0])), (before, after)

    # The first segment may go on with a memory; those that follow begin at an encoded state.
    pieces = [_segment(core, start, *part(0, every))]
    middle = jax.tree.map(lambda a: a.reshape(whole, every, *a.shape[1:]), part(every, whole * every))
    reached = pieces[0][1]
    last, segments = jax.lax.scan(segment, (reached[-1], model.remember(past, reached, actions[:every])), middle)
    pieces.append(jax.tree.map(lambda a: a.reshape(whole * every, *a.shape[2:]), segments))
    if rest:
        pieces.append(segment(last, part((whole + 1) * every, rest))[1])
    return jnp.concatenate([before for before, _ in pieces]), jnp.concatenate([after for _, after in pieces])


def _segment(core: LatentDynamics, start: Start, actions: Array, durations: Array | None) -> tuple[Array, Array]:
    latents = core.rollout(start, actions, durations)
    return jnp.concatenate([latent_of(start)[None], latents[:-1]]), latents
