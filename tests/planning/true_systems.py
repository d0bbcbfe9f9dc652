"""Systems whose best control is known, as planners see a model: a double integrator and a pendulum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

STEP = 0.1
A = np.array([[1.0, STEP], [0.0, 1.0]])
B = np.array([[STEP**2 / 2], [STEP]])
Q = np.diag([1.0, 0.1])
R = np.array([[0.05]])


def riccati_solution():
    return scipy.linalg.solve_discrete_are(A, B, Q, R)


class Simulated(eqx.Module):
    """A system given by its own step: latents are states, and a reward belongs to a state and an action."""

    def encode(self, observation, *, horizon):
        return observation

    def rollout(self, start, actions):
        first = jnp.broadcast_to(start, (actions.shape[1], start.shape[0]))

        def move(states, now):
            states = jax.vmap(self.step)(states, now)
            return states, states

        return jnp.concatenate([first[None], jax.lax.scan(move, first, actions)[1]])

    def reward(self, latents, actions):
        return jax.vmap(jax.vmap(self.pay))(latents[:-1], actions)

    def value(self, latents):
        return jnp.zeros(latents.shape[0])


class DoubleIntegrator(Simulated):
    """x_{t+1} = A x_t + B a_t with quadratic cost; its value is Riccati's, so any horizon has the same optimum."""

    cost_to_go: jax.Array

    def __init__(self):
        self.cost_to_go = jnp.asarray(riccati_solution(), jnp.float32)

    def step(self, state, action):
        return jnp.asarray(A, jnp.float32) @ state + jnp.asarray(B, jnp.float32) @ action

    def pay(self, state, action):
        return -(state @ jnp.asarray(Q, jnp.float32) @ state) - action @ jnp.asarray(R, jnp.float32) @ action

    def value(self, latents):
        return -jnp.einsum("ni,ij,nj->n", latents, self.cost_to_go, latents)


class Pendulum(Simulated):
    """Gymnasium's Pendulum-v1: state [θ, θ'], 0 is upright, torque within ±2."""

    def step(self, state, action):
        angle, speed = state
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * action[0]) * 0.05, -8.0, 8.0)
        return jnp.stack([angle + speed * 0.05, speed])

    def pay(self, state, action):
        angle = jnp.mod(state[0] + jnp.pi, 2 * jnp.pi) - jnp.pi
        return -(angle**2 + 0.1 * state[1] ** 2 + 0.001 * action[0] ** 2)


class NaNAbove(Simulated):
    """A reward that grows with the action but is NaN where any action of the candidate exceeds a limit."""

    limit: jax.Array

    def step(self, state, action):
        return state + 0 * action

    def pay(self, state, action):
        return jnp.where(action[0] > self.limit, jnp.nan, action[0])


@eqx.filter_jit
def closed_loop(planner, model, states, *, steps, key):
    """Returns `[environment]` of planning and stepping the true system, from each of `states`."""

    def one(state, own_key):
        def step(carry, step_key):
            state, plan = carry
            decision = planner.plan(model, state, plan, key=step_key)
            return (model.step(state, decision.action), decision.state), model.pay(state, decision.action)

        _, rewards = jax.lax.scan(step, (state, planner.init(1)), jax.random.split(own_key, steps))
        return jnp.sum(rewards)

    return jax.vmap(one)(states, jax.random.split(key, states.shape[0]))


@eqx.filter_jit
def pendulum_optimum(states, *, steps, angles=151, speeds=151, torques=31):
    """Returns of dynamic programming: values on a grid, backwards; the greedy control then runs the true system.

    Between points of the grid values are interpolated; the control is a real one, so its return can't be too good.
    """
    model = Pendulum()
    angle = jnp.linspace(-jnp.pi, jnp.pi, angles)
    speed = jnp.linspace(-8.0, 8.0, speeds)
    torque = jnp.linspace(-2.0, 2.0, torques)[:, None]

    def interpolated(values, state):
        around = (jnp.mod(state[0] + jnp.pi, 2 * jnp.pi)) / (2 * jnp.pi) * (angles - 1)
        along = (state[1] + 8.0) / 16.0 * (speeds - 1)
        return jax.scipy.ndimage.map_coordinates(values, [around, along], order=1, mode="nearest")

    def options(values, state):
        ahead = jax.vmap(lambda a: interpolated(values, model.step(state, a)))(torque)
        return jax.vmap(lambda a: model.pay(state, a))(torque) + ahead

    def backward(values, _):
        best = jax.vmap(jax.vmap(lambda a, s: jnp.max(options(values, jnp.stack([a, s]))), (None, 0)), (0, None))
        return best(angle, speed), values

    _, later = jax.lax.scan(backward, jnp.zeros((angles, speeds)), length=steps)

    def forward(state, values):
        action = torque[jnp.argmax(options(values, state))]
        return model.step(state, action), model.pay(state, action)

    return jax.vmap(lambda state: jnp.sum(jax.lax.scan(forward, state, later[::-1])[1]))(states)
