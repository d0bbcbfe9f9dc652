"""Episodes: one to learn from, with random actions at first, and several at once to measure the agent."""

from collections.abc import Sequence

import numpy as np

from koopax._interrupt import StopRequest
from koopax.agents.tdmpc.agent import Keys, Learner, decide, fresh_plans, mode_at
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.agents.tdmpc.tasks import Task
from koopax.data.episodes import Episode

# Numbers of evaluation episodes start here, so that none is ever trained on.
EVALUATION_EPISODES = 1_000_000_000


def play(
    task: Task,
    learner: Learner,
    number: int,
    decisions: int,
    config: TDMPCConfig,
    stop: StopRequest,
    errors: Sequence[float] = (),
) -> tuple[Episode, int] | None:
    """Episode `number`, which begins after `decisions` decisions, and the environment steps that it took.

    Actions are in [−1, 1]; plans may depend on the model's `errors`. None if a stop was requested in its middle.
    """
    observations, actions, rewards, environment_steps = [task.reset(number)], [], [], 0
    random = decisions < config.seed_decisions
    rng, key = np.random.default_rng((config.seed, number)), Keys.of(config.seed).planning
    plans = fresh_plans(config.searched_length(decisions, errors), task.action_size, 1)
    mode = mode_at(config, decisions, errors, explore=True)
    while not stop.requested:
        if random:
            action = rng.uniform(-1, 1, task.action_size).astype(np.float32)
        else:
            now = np.array([decisions + len(actions)])
            observed = observations[-1][None]
            decision = decide(learner.model, learner.policy, observed, plans, mode, now, config.compiled(), key=key)
            action, plans = np.asarray(decision.action)[0], decision.state
        action = np.clip(action, -1, 1)
        outcome = task.step(action)
        observations.append(outcome.observation)
        actions.append(action)
        rewards.append(outcome.reward)
        environment_steps += outcome.steps
        if outcome.ended:
            arrays = np.stack(observations), np.stack(actions), np.array(rewards)
            return Episode(*arrays, terminated=outcome.terminated), environment_steps
    return None


def evaluate(
    config: TDMPCConfig, learner: Learner, decisions: int, count: int, errors: Sequence[float] = ()
) -> list[float]:
    """Returns of `count` episodes without exploration, played together."""
    tasks = [Task(config.task, seed=config.seed, action_repeat=config.action_repeat) for _ in range(count)]
    first = EVALUATION_EPISODES + decisions * count
    observations = np.stack([task.reset(first + i) for i, task in enumerate(tasks)])
    plans = fresh_plans(config.searched_length(decisions, errors), tasks[0].action_size, count)
    mode, key = mode_at(config, decisions, errors, explore=False), Keys.of(config.seed).planning
    returns, running, step = np.zeros(count), np.ones(count, bool), 0
    while running.any():
        # Seeds of evaluation decisions are negative: those of training are not.
        seeds = -1 - (step * count + np.arange(count))
        decision = decide(learner.model, learner.policy, observations, plans, mode, seeds, config.compiled(), key=key)
        actions, plans = np.clip(np.asarray(decision.action), -1, 1), decision.state
        for i in np.flatnonzero(running):
            outcome = tasks[i].step(actions[i])
            observations[i] = outcome.observation
            returns[i] += outcome.reward
            running[i] = not outcome.ended
        step += 1
    for task in tasks:
        task.close()
    return returns.tolist()
