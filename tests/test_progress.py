"""What a training shows while it runs."""

import io

from rich.console import Console

from koopax._progress import training_progress

BAR = 24
LINES = [
    {"step": 0, "seconds": 0.0, "compile_seconds": 8.4, "seed": 0},
    {"step": 50, "seconds": 1.5, "loss": 1.2345, "state": 0.12345, "reward": 0.23456, "seed": 0},
    {"step": 200, "seconds": 6.0, "validation_state": 0.34567, "validation_reward": 0.45678, "seed": 0},
    {"step": 2000, "seconds": 62.0, "loss": 1.1, "state": 0.098765, "reward": 0.087654, "seed": 0},
]


def rendered(lines, *, steps=2000, seeds=1, width=80):
    """What stands in a terminal of that width after each line."""
    shots = []
    for count in range(1, len(lines) + 1):
        # A file is shown the last frame only.
        console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
        with training_progress("koopman", steps, None, seeds=seeds, console=console) as watch:
            for line in lines[:count]:
                watch(line)
        shots.append(console.file.getvalue())
    return shots


def test_the_bar_stays_at_80_columns_when_validations_come():
    shots = rendered(LINES)
    assert "compiled in 8.4 s" in shots[0]
    assert "━" * BAR in shots[-1]
    for shot, told in zip(shots, ("compiled", "50 steps", "200 steps", "2000 steps"), strict=True):
        bar, *beneath = shot.rstrip("\n").split("\n")
        assert bar.index(told) == len("koopman") + 1 + BAR + 1, shot  # an empty bar is blank
        assert all(len(line) <= 80 for line in (bar, *beneath))
        assert len(beneath) <= 1
    assert "2000 steps, 32.3/s" in shots[-1]
    assert "state 0.09877  reward 0.08765  val state 0.3457  val reward 0.4568" in shots[-1]


def test_data_without_rewards_shows_none():
    without = [{name: value for name, value in line.items() if "reward" not in name} for line in LINES]
    assert not any("reward" in shot for shot in rendered(without))


def test_every_seed_has_a_bar():
    lines = [line | {"seed": seed} for seed in (3, 4) for line in LINES]
    shot = rendered(lines, seeds=2)[-1]
    assert "koopman, seed 3" in shot
    assert "koopman, seed 4" in shot
    for line in shot.split("\n")[:2]:
        assert "━" * BAR in line, shot


def test_what_is_done_before_the_first_step_is_told_and_steps_left_open_are_counted():
    choosing = {"step": 0, "seconds": 0.0, "doing": "choosing windows", "seed": 0}
    shots = rendered([choosing, LINES[0] | {"steps": 4000}, LINES[-1]], steps=None)
    assert "choosing windows" in shots[0]
    assert "compiled in 8.4 s" in shots[1]
    assert "━" * (BAR // 2) in shots[2]
    assert "━" * BAR not in shots[2], shots[2]
