"""Episodes: one to learn from, with random actions at first, and several at once to measure the agent."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from koopax._interrupt import StopRequest
from koopax.agents.tdmpc.agent import Keys, Learner, decide, fresh_plans, mode_at
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.agents.tdmpc.tasks import Task
from koopax.data.episodes import Episode
from koopax.planning.planner import Decision

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
    played = play_together(config, learner, decisions, count, errors)
    return [float(np.sum(episode.rewards, dtype=float)) for episode in played]


def play_together(
    config: TDMPCConfig,
    learner: Learner,
    decisions: int,
    count: int,
    errors: Sequence[float] = (),
    *,
    see: Callable[[np.ndarray, Decision, float], None] = lambda observations, decision, seconds: None,
) -> list[Episode]:
    """`count` episodes without exploration, as an agent plays them after that many decisions.

    `see` is shown every decision for all environments, also for those whose episode is over already, and told how
    many seconds it took.
    """
    tasks = [Task(config.task, seed=config.seed, action_repeat=config.action_repeat) for _ in range(count)]
    observations = np.stack([task.reset(evaluation_episode(decisions, count) + i) for i, task in enumerate(tasks)])
    plans = fresh_plans(config.searched_length(decisions, errors), tasks[0].action_size, count)
    mode, key = mode_at(config, decisions, errors, explore=False), Keys.of(config.seed).planning
    seen, taken, rewards = [[row.copy()] for row in observations], [[] for _ in tasks], [[] for _ in tasks]
    terminated, running, step = np.zeros(count, bool), np.ones(count, bool), 0
    while running.any():
        # Seeds of evaluation decisions are negative: those of training are not.
        seeds, started = -1 - (step * count + np.arange(count)), time.perf_counter()
        decision = decide(learner.model, learner.policy, observations, plans, mode, seeds, config.compiled(), key=key)
        actions, plans = np.clip(np.asarray(decision.action), -1, 1), decision.state
        see(observations, decision, time.perf_counter() - started)
        for i in np.flatnonzero(running):
            outcome = tasks[i].step(actions[i])
            observations[i] = outcome.observation
            seen[i].append(outcome.observation)
            taken[i].append(actions[i])
            rewards[i].append(outcome.reward)
            terminated[i], running[i] = outcome.terminated, not outcome.ended
        step += 1
    for task in tasks:
        task.close()
    return [
        Episode(np.stack(seen[i]), np.stack(taken[i]), np.array(rewards[i]), terminated=bool(terminated[i]))
        for i in range(count)
    ]


def evaluation_episode(decisions: int, count: int) -> int:
    """The number of the first of `count` evaluation episodes after that many decisions."""
    return EVALUATION_EPISODES + decisions * count
