"""The recorded search for what serves the first steps: losses on them after more starts, and weight decay.

Judged like `koopax.experiments.search`, but on one set of each robot, of which two are broad, and with the error of
steps 1 to 10 beside that of all.
"""

from koopax.experiments.arms import ArmsBudget, arms_experiment

DECAY = {"weight_decay": 0.03}
ARMS = {
    "koopman": ("koopman", {}, {}),
    "koopman, first steps 0.3": ("koopman", {}, {"early_weight": 0.3}),
    "koopman, decay": ("koopman", {}, DECAY),
    "koopman, decay, first steps 0.3": ("koopman", {}, DECAY | {"early_weight": 0.3}),
    "koopman, decay, first steps 0.6": ("koopman", {}, DECAY | {"early_weight": 0.6}),
    "mlp": ("mlp", {}, {}),
    "gru": ("gru", {}, {}),
    "gru, first steps 0.3": ("gru", {}, {"early_weight": 0.3}),
}
DATASETS = ("halfcheetah/full-replay", "walker2d/expert", "hopper/full-replay")
BUDGETS = {
    "smoke": ArmsBudget(
        data_steps=4_000, seconds=2.0, horizon=12, windows=50, batch_size=4, datasets=("hopper/full-replay",)
    ),
    "cpu": ArmsBudget(data_steps=200_000, seconds=30.0, horizon=100, windows=2_000, datasets=DATASETS),
    "paper": ArmsBudget(
        data_steps=1_000_000, seconds=1_800.0, horizon=100, windows=50_000, batch_size=256, datasets=DATASETS
    ),
}
EXPERIMENT = arms_experiment("first-steps", "First steps: validation error at equal time", ARMS, BUDGETS)
