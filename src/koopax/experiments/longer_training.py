"""The recorded search for what longer training wants: weight decay for every core that leads, a pilot, members that
learn by themselves or partly together, a deeper action encoder, deeper decoders, linear paths, a decay that rises, and
a memory of squared gradients that grows.

After two minutes a model has seen every window many times. Arms without decay are the defaults of 30 seconds of
before; the arm with deeper decoders is today's.
"""

from koopax.experiments.arms import ArmsBudget, arms_experiment

NONE, DECAY = {"weight_decay": 0.0}, {"weight_decay": 0.1}
PILOT = {"pilot_modes": 16}
THIN = {"members": 2, "pilot_modes": 16, "decoder_hidden": (272, 256), "action_embedding": 8}
DEEP = THIN | {"pilot_modes": 32, "action_hidden": (64, 64)}
DEEP_DECODER = DEEP | {"linear_paths": True, "encoder_hidden": (128,), "decoder_hidden": (208, 208, 208, 208)}
RISING = {"beta2_rise": 0.7}
STARTS = {"weight_decay": 0.03, "early_weight": 0.6, "early_starts": 4} | RISING
JOINT = STARTS | {"joint_share": 0.5}
RISING_DECAY = JOINT | {"weight_decay": 0.1, "decay_steps": 3000}
ARMS = {
    "koopman": ("koopman", {}, NONE),
    "koopman, decay 0.03": ("koopman", {}, {"weight_decay": 0.03}),
    "koopman, decay 0.1": ("koopman", {}, DECAY),
    "koopman, pilot, decay 0.1": ("koopman", PILOT, DECAY),
    "koopman, 2 members, thin path, rising memory": ("koopman", THIN, {"weight_decay": 0.03} | RISING),
    "koopman, the same, first steps": ("koopman", THIN, {"weight_decay": 0.03, "early_weight": 0.3} | RISING),
    "koopman, the same, more first steps": ("koopman", THIN, STARTS),
    "koopman, the same, joint losses": ("koopman", THIN, JOINT),
    "koopman, the same, deeper": ("koopman", DEEP, JOINT),
    "koopman, the same, linear paths": ("koopman", DEEP | {"linear_paths": True}, JOINT),
    "koopman, the same, rising decay": ("koopman", DEEP | {"linear_paths": True}, RISING_DECAY),
    "koopman, the same, deeper decoders": ("koopman", DEEP_DECODER, RISING_DECAY),
    "koopman, the same, decay 0.1 throughout": ("koopman", DEEP | {"linear_paths": True}, JOINT | DECAY),
    "mlp": ("mlp", {}, NONE),
    "mlp, decay 0.1": ("mlp", {}, DECAY),
    "mlp, decay 0.1, rising memory": ("mlp", {}, DECAY | RISING),
    "gru": ("gru", {}, NONE),
    "gru, decay 0.1": ("gru", {}, DECAY),
    "gru, decay 0.1, rising memory": ("gru", {}, DECAY | RISING),
}
DATASETS = ("halfcheetah/expert", "walker2d/full-replay", "hopper/medium-expert")
BUDGETS = {
    "smoke": ArmsBudget(
        data_steps=4_000, seconds=2.0, horizon=12, windows=50, batch_size=4, datasets=("hopper/medium-expert",)
    ),
    "cpu": ArmsBudget(data_steps=200_000, seconds=120.0, horizon=100, windows=2_000, datasets=DATASETS),
    "paper": ArmsBudget(
        data_steps=1_000_000, seconds=7_200.0, horizon=100, windows=50_000, batch_size=256, datasets=DATASETS
    ),
}
EXPERIMENT = arms_experiment("longer-training", "Longer training: validation error at equal time", ARMS, BUDGETS)
