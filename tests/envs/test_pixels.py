"""Pixel environments through the real renderer: what they draw, that episodes can be gone back to, what is refused."""

import os

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.envs.renderers import Renderers


@pytest.fixture
def renderers():
    opened = []

    def open_one(*args, **options):
        opened.append(Renderers(*args, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_frames_move_with_the_task_and_come_again_with_the_seed(renderers):
    envs = renderers("cartpole-swingup", 2, size=48, processes=2)
    assert (envs.action_size, envs.action_repeat) == (1, 8)
    first = envs.reset({0: 7, 1: 7})
    assert first[0].shape == (48, 48, 3)
    assert first[0].dtype == np.uint8
    assert first[0].std() > 5
    np.testing.assert_array_equal(first[0], first[1])
    right = np.ones(1, np.float32)
    after = envs.step({0: right, 1: -right})
    assert (after[0].frame != after[1].frame).any()
    assert after[0].steps == 8
    assert envs.draw(0, 160, 120).shape == (120, 160, 3)


def test_an_episode_is_resumed_without_drawing(renderers):
    envs = renderers("ball_in_cup-catch", 3, size=32, processes=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    envs.reset({0: 3})
    for action in actions:
        there = envs.step({0: action})[0]
    envs.reset({2: 5})
    envs.resume({2: 3}, {2: actions[:-1]})
    again = envs.step({2: actions[-1]})[2]
    np.testing.assert_array_equal(again.frame, there.frame)
    assert again.reward == there.reward


def test_gymnasium_tasks_are_drawn_at_the_size_that_is_asked_for(renderers):
    envs = renderers("HalfCheetah-v5", 1, size=40)
    frame = envs.reset({0: 0})[0]
    assert (frame.shape, envs.action_repeat) == ((40, 40, 3), 1)
    assert frame.std() > 5


def test_a_task_without_pixels_is_refused(renderers):
    os.environ.setdefault("MUJOCO_GL", "egl")
    with pytest.raises(KoopaxError, match=r"unknown environment 'cartpol-swingup'"):
        renderers("cartpol-swingup", 1, size=32)


def test_a_missing_renderer_is_named_with_its_packages(renderers, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(KoopaxError, match=r"can't be drawn .*libegl1 and libgl1-mesa-dri"):
        renderers("cartpole-swingup", 1, size=32)
