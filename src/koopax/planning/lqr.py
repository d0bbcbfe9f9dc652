"""Linear-quadratic control: Riccati equations, and LQR on a learned latent system with a cost in state space.

The cost Σ (s_t − s*)ᵀ Q (s_t − s*) + a_tᵀ R a_t is the user's, about states s; the system is the model's,

    x_{t+1} = A x_t + B a_t + b,      s_t = C x_t + c,

about latents x. Both are put into one linear system by a last component that is always 1,

    z = [x; 1],   z_{t+1} = [[A, b], [0, 1]] z_t + [B; 0] a_t,   cost zᵀ Mᵀ Q M z + aᵀ R a,   M = [C, c − s*],

and a backward Riccati recursion over the horizon gives a_t = −K z_t. The horizon is finite because the constant never
decays: where s* is no equilibrium of the model, no stationary cost is finite.

What is exact and what is not: A, B, b are the core's Jacobians at the goal's latent and action, C, c the decoder's.
For the diagonal Koopman core the modes' transition is exact everywhere, and so is what actions do to them, present and
remembered ones, if its action encoder is linear (`action_hidden=()`); with a linear decoder (`decoder_hidden=()`) the
control is then the exact optimum of the model from any latent. A hidden layer in either makes that part a
linearisation, good near the goal. Bounds are not part of LQR: actions are clipped.

A controller returns to the encoder at every decision, but the gain knows nothing of it: over a long horizon it relies
on how latents that were encoded once move on by themselves, far beyond any window of the training. Where a model is
nonlinear and its encoder sees all there is to know, `linearise_states` therefore linearises its most accurate part,
one step from state to state, s_{t+1} = d(core(g(s_t), a_t)): then x is s, C is the identity, and unstable eigenvalues
are those of the plant, whatever the spectrum can express.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.dynamics import DynamicsModel
from koopax.models.latent import SequenceDynamics, latent_of
from koopax.planning.learned import LearnedModel, in_states
from koopax.planning.planner import Decision, Diagnostics, Planner
from koopax.planning.protocol import Box, PlanningModel, PlanStart

DOUBLINGS = 40


class Affine(NamedTuple):
    """x_{t+1} = A x_t + B a_t + b,  s_t = C x_t + c."""

    A: Float[Array, "latent latent"]
    B: Float[Array, "latent action"]
    b: Float[Array, " latent"]
    C: Float[Array, "state latent"]
    c: Float[Array, " state"]


def riccati(
    A: Float[Array, "n n"],
    B: Float[Array, "n m"],
    Q: Float[Array, "n n"],
    R: Float[Array, "m m"],
    *,
    steps: int,
    final: Float[Array, "n n"] | None = None,
) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """The cost-to-go P and the gain K of the first of `steps` steps, a = −K x.

    P_T = `final` (Q by default) and backwards, for t = T−1 … 0,

        K_t = (R + Bᵀ P_{t+1} B)⁻¹ Bᵀ P_{t+1} A,    P_t = Q + Aᵀ P_{t+1} (A − B K_t).
    """

    def backward(P: Array, _: None) -> tuple[Array, None]:
        P = Q + A.T @ P @ (A - B @ gain(A, B, R, P))
        return (P + P.T) / 2, None  # rounding must not make it unsymmetric

    later, _ = jax.lax.scan(backward, Q if final is None else final, length=steps - 1)
    return backward(later, None)[0], gain(A, B, R, later)


def gain(A: Float[Array, "n n"], B: Float[Array, "n m"], R: Float[Array, "m m"], P: Float[Array, "n n"]) -> Array:
    """K = (R + Bᵀ P B)⁻¹ Bᵀ P A."""
    return jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)


def lqr(
    A: Float[Array, "n n"], B: Float[Array, "n m"], Q: Float[Array, "n n"], R: Float[Array, "m m"]
) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """The stationary P and K: the solution of P = Q + Aᵀ P (A − B K), as `scipy.linalg.solve_discrete_are` finds it.

    By doubling: after k rounds, H is what 2ᵏ steps of `riccati` from P_T = 0 give. With W = I + G H,

        A ← A W⁻¹ A,   G ← G + A W⁻¹ G Aᵀ,   H ← H + Aᵀ H W⁻¹ A,    from G = B R⁻¹ Bᵀ, H = Q.
    """

    def double(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        F, G, H = carry
        W = jnp.eye(len(F), dtype=F.dtype) + G @ H
        WF, WG = jnp.linalg.solve(W, F), jnp.linalg.solve(W, G)
        G, H = G + F @ WG @ F.T, H + F.T @ H @ WF
        return (F @ WF, (G + G.T) / 2, (H + H.T) / 2), None

    (_, _, P), _ = jax.lax.scan(double, (A, B @ jnp.linalg.solve(R, B.T), Q), length=DOUBLINGS)
    return P, gain(A, B, R, P)


def linearise(
    model: DynamicsModel, goal: Float[Array, " state"], action: Float[Array, " action"] | None = None
) -> Affine:
    """The model around a raw goal state and action (0 by default), in raw units of states and actions."""
    if isinstance(model.core, SequenceDynamics):
        raise KoopaxError(
            f"LQR needs a core whose latent is its whole state, but {model.config.core!r} remembers more: "
            "use koopman, mlp or gru."
        )
    action = jnp.zeros(model.config.action_size) if action is None else action
    if model.config.history == 1:
        latent = model.encode(goal)
    else:  # at rest there: all that a history holds is the same
        latent = model.encode(jnp.tile(goal, (model.config.history, 1)), jnp.tile(action, (model.past_steps, 1)))

    def step(x: Array, a: Array) -> Array:
        return model.core.step(x, model.normaliser.normalise_action(a))  # pyright: ignore[reportReturnType]

    A, B = jax.jacobian(step, argnums=(0, 1))(latent, action)
    C = jax.jacobian(model.decode)(latent)
    return Affine(A, B, step(latent, action) - A @ latent - B @ action, C, model.decode(latent) - C @ latent)


def linearise_states(
    model: DynamicsModel, goal: Float[Array, " state"], action: Float[Array, " action"] | None = None
) -> Affine:
    """One step of the model from state to state around a raw goal and action (0 by default): x is the state itself."""
    action = jnp.zeros(model.config.action_size) if action is None else action

    def step(state: Array, a: Array) -> Array:
        return model.decode(latent_of(model.core.step(model.encode(state), model.normaliser.normalise_action(a))))

    A, B = jax.jacobian(step, argnums=(0, 1))(goal, action)
    size = goal.shape[0]
    return Affine(A, B, step(goal, action) - A @ goal - B @ action, jnp.eye(size), jnp.zeros(size))


class LQR(Planner):
    """a = −K [x; 1], clipped to the bounds; the gain is computed once, so a decision costs one encoding."""

    box: Box
    gain: Float[Array, "action extended"]
    cost_to_go: Float[Array, "extended extended"]
    in_states: bool = eqx.field(static=True, default=False)
    """Whether x is the state, not the latent."""

    def seen(self, model: DynamicsModel) -> PlanningModel:
        """With decoded states in the place of latents, where the gain is about states."""
        return in_states(model) if self.in_states else LearnedModel(model)

    @classmethod
    def for_cost(
        cls,
        system: Affine,
        goal: Float[Array, " state"],
        state_cost: Float[Array, "state state"],
        action_cost: Float[Array, "action action"],
        *,
        horizon: int,
        box: Box | None = None,
        in_states: bool = False,
    ) -> "LQR":
        """The controller of Σ (s − goal)ᵀ Q (s − goal) + aᵀ R a over `horizon` steps, Q at their end too."""
        size, action_size = system.B.shape
        A = jnp.eye(size + 1).at[:size, :size].set(system.A).at[:size, size].set(system.b)
        B = jnp.zeros((size + 1, action_size)).at[:size].set(system.B)
        M = jnp.concatenate([system.C, (system.c - goal)[:, None]], axis=1)
        P, K = riccati(A, B, M.T @ state_cost @ M, action_cost, steps=horizon)
        if not bool(jnp.all(jnp.isfinite(K))):
            raise KoopaxError(
                f"LQR over {horizon} steps diverged on this system: raise the action's cost or shorten the horizon."
            )
        return cls(Box() if box is None else box, K, P, in_states)

    def init(self, action_size: int) -> tuple[()]:
        """Nothing is carried from one decision to the next."""
        del action_size
        return ()

    @property
    def longest(self) -> int:
        """1: it looks at the latent that it starts from, and the gain knows the rest."""
        return 1

    def search(
        self,
        model: PlanningModel,
        start: PlanStart,
        state: tuple[()],
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """As `Planner.search`, for models whose latents are one array; without noise, over the gain's own horizon."""
        del key, explore, horizon
        first = jnp.zeros((1, 1, self.gain.shape[0]))
        latent = model.rollout(start, first)[0, 0]
        extended = jnp.append(latent, 1.0)
        action = -self.gain @ extended
        # A latent that is not finite must not reach the actuators.
        finite = jnp.all(jnp.isfinite(action))
        safe = jnp.where(finite, action, self.box.from_unit(jnp.zeros_like(action)))
        diagnostics = Diagnostics(-extended @ self.cost_to_go @ extended, jnp.zeros(()), 1.0 - finite)
        return Decision(jnp.clip(safe, self.box.low, self.box.high), state, diagnostics)
