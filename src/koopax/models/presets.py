"""Complete model settings by name: every model of the comparison at the same size.

At 17 states and 6 actions each has 500k ± 10 % trainable parameters, as in the paper; a test counts them. Where they
stand is a choice made for each core:

| preset          | where the parameters stand                                                                     |
|-----------------|------------------------------------------------------------------------------------------------|
| `koopman`       | two members; most in their decoders, which training runs on every tenth step of a window, four |
|                 | layers deep, as a state is far from linear in what a latent keeps of past actions; what runs   |
|                 | at every step is thin: 8 complex numbers tell a member of an action. Linear paths beside       |
|                 | encoder and decoders carry what a state keeps over its first steps                             |
| `koopman-paper` | the published configuration: spectrum, mirrored modes, input scale and widths of the listing   |
| `mlp`           | half the model is its two layers, twice as wide in the middle as the latent                    |
| `gru`           | as wide a hidden state as fits: half the model is its recurrent matrix                         |
| `transformer`   | width 64 and 4 heads as in the paper; five blocks with wide feed-forward layers                |
| `dssm`          | four S4D layers of 192 channels with 16 modes each                                             |

`koopman-stochastic` is `koopman` with noise, for intervals that are as wide as it is unsure.

Two more have no networks and are fitted by least squares: `dmdc`, linear in state and action, and `edmd`, in
polynomials of the state, also multiplied by the actions.

MLP and GRU see the actions themselves: in short trials on HalfCheetah, an embedding at the same size was worse.
"""

from collections.abc import Mapping
from typing import Any

from koopax._errors import unknown_name

_PRESETS: dict[str, Mapping[str, Any]] = {
    "koopman": {
        "core": "koopman",
        "latent_size": 512,
        "encoder_hidden": (128,),
        "decoder_hidden": (208, 208, 208, 208),
        "reward_hidden": None,
        "activation": "gelu",
        "action_embedding": 8,
        "action_hidden": (64, 64),
        "action_history": 4,
        "pilot_modes": 32,
        "members": 2,
        "spectrum": "multiscale",
        "linear_paths": True,
    },
    "koopman-small": {
        "core": "koopman",
        "latent_size": 64,
        "encoder_hidden": (64, 64),
        "decoder_hidden": (64, 64),
        "reward_hidden": None,
        "activation": "gelu",
        "action_embedding": 16,
        "action_hidden": (32,),
        "action_history": 1,
        "spectrum": "multiscale",
        "linear_paths": True,
        "linear_path": True,
    },
    "koopman-paper": {
        "core": "koopman",
        "latent_size": 512,
        "encoder_hidden": (256,),
        "decoder_hidden": (256,),
        "reward_hidden": (256,),
        "activation": "relu",
        "action_embedding": 64,
        "action_hidden": (128,),
        "action_history": 1,
        "pilot_modes": 0,
        "members": 1,
        "input_std": 0.1,
        "spectrum": "paper",
        "spectrum_options": {"mirrored": True},
        "linear_paths": False,
    },
    "dmdc": {"core": "linear", "encoder": "polynomials", "encoder_options": {"degree": 1}, "coupled": 1},
    "edmd": {"core": "linear", "encoder": "polynomials", "encoder_options": {"degree": 2}},
    "mlp": {"core": "mlp", "latent_size": 256, "hidden": 544},
    "gru": {"core": "gru", "latent_size": 288},
    "transformer": {"core": "transformer", "latent_size": 64, "layers": 5, "heads": 4, "feedforward": 512},
    "dssm": {"core": "dssm", "latent_size": 192, "layers": 4, "state_size": 32},
}

# The same with noise, which has no parameters of the mean.
PRESETS: Mapping[str, Mapping[str, Any]] = _PRESETS | {
    f"{name}-stochastic": {**_PRESETS[name], "stochastic": True} for name in ("koopman", "koopman-small")
}


def preset(name: str) -> dict[str, Any]:
    """The arguments of `DynamicsModel.create` for that preset, except for the data and the key.

    `DynamicsModel.create(data=train, key=key, **preset("gru"))`
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    return dict(PRESETS[name])


# Steps of training data below which `koopman` is the small one, unless a width is given.
SMALL_DATA = 20_000
WIDTHS = ("latent_size", "encoder_hidden", "decoder_hidden")


# The Koopman model of one member and without a pilot, for frames and for narrow latents: few modes are little to share,
# and whoever wants to read a spectrum finds each mode once.
ONE_MEMBER: Mapping[str, Any] = {
    "encoder_hidden": (256,),
    "decoder_hidden": (384, 384),
    "reward_hidden": None,
    "activation": "gelu",
    "action_embedding": 16,
    "action_hidden": (64,),
    "action_history": 4,
    "pilot_modes": 0,
    "members": 1,
    "spectrum": "multiscale",
    "linear_paths": False,
}
SHARED_WIDTH = 256


# What differs where states are frames: one does not tell how fast things move, and the picture's networks are large.
OF_FRAMES: Mapping[str, Any] = {"history": 3}


def suited_preset(
    name: str, steps: int, options: Mapping[str, Any], image_shape: tuple[int, int, int] | None = None
) -> dict[str, Any]:
    """As `preset`; but little data gets a small Koopman model, which learns it sooner and better; frames a history.

    A Koopman model of frames, or with a latent narrower than `SHARED_WIDTH`, has one member.
    """
    if image_shape is not None:
        return {**_of_one_member(name), **OF_FRAMES}
    little = steps < SMALL_DATA and not any(width in options for width in WIDTHS)
    if little and name in ("koopman", "koopman-stochastic"):
        return preset(name.replace("koopman", "koopman-small"))
    narrow = options.get("latent_size", SHARED_WIDTH) < SHARED_WIDTH
    return _of_one_member(name) if narrow else preset(name)


def _of_one_member(name: str) -> dict[str, Any]:
    return {**preset(name), **(ONE_MEMBER if name in ("koopman", "koopman-stochastic") else {})}


# Settings of training, by core, where the user gives none: peak learning rate, and every how many-th step of a window
# the losses look at. The learning rates and Koopman's stride were chosen by `koopax reproduce search`, see
# results/search. The other strides were not searched: cores that train on long windows have Koopman's, and the MLP,
# which trains on short ones, has every step.
PLAIN_TRAINING: Mapping[str, Any] = {
    "early_weight": 0.0,
    "early_starts": 2,
    "joint_share": 0.0,
    "weight_decay": 0.0,
    "decay_steps": 0,
    "beta2": 0.999,
    "beta2_rise": 0.0,
}
"""Losses on whole windows alone, of each member by itself; no weight decay, and Adam's own memory."""
_PLAIN: Mapping[str, Any] = {"learning_rate": 1e-3, "loss_stride": 1} | PLAIN_TRAINING
TRAINING: Mapping[str, Mapping[str, Any]] = {
    "koopman": _PLAIN
    | {
        "learning_rate": 8e-3,
        "loss_stride": 10,
        "early_weight": 0.6,
        "early_starts": 4,
        "joint_share": 0.5,
        "weight_decay": 0.1,
        "decay_steps": 3000,
        "beta2_rise": 0.7,
    },
    "mlp": _PLAIN | {"learning_rate": 2e-3, "weight_decay": 0.1},
    "gru": _PLAIN | {"learning_rate": 6e-3, "loss_stride": 10, "weight_decay": 0.1, "beta2_rise": 0.7},
    "transformer": _PLAIN | {"learning_rate": 3e-3, "loss_stride": 10},
    "dssm": _PLAIN | {"learning_rate": 3e-3, "loss_stride": 10},
    # Fitted by least squares; gradient steps are for those who ask for them.
    "linear": _PLAIN | {"steps": 0},
}
OTHER_TRAINING: Mapping[str, Any] = _PLAIN
