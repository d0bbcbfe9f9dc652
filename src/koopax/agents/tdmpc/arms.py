"""The arms of the comparison, and TD-MPC as published: settings by name."""

from collections.abc import Mapping
from typing import Any

from koopax.agents.tdmpc.config import TDMPCConfig

# TD-MPC as published, for machines that can afford it.
PUBLISHED: Mapping[str, Any] = {
    "latent_size": 50,
    "reward_hidden": (512, 512),
    "hidden": (512, 512),
    "batch_size": 512,
    "samples": 512,
    "iterations": 6,
    "elites": 64,
    "proposals": 25,
    "value_steps": 20,
    "steps": 500_000,
    "seed_decisions": 5_000,
    "evaluate_episodes": 10,
    "reader": None,
    "latent_norm": "none",
    "latent_bound": None,
    "value_head": None,
    "loss_steps": None,
}

# What differs between the arms of the comparison; other cores are like mlp. Plans of mlp reach their 5 steps after the
# published 25 000 decisions, those of koopman their 20 after 4 750, ranked by returns of several lengths. What its
# values see is read off its latent, which alone has to be linear, and normalised: else it grows until the consistency
# loss is all that is learned. Losses are taken on some steps of a window only. Heads are small, and V values plans, so
# that a plan of 20 steps takes little more time than 5 steps of mlp.
ARMS: Mapping[str, Mapping[str, Any]] = {
    "mlp": {"horizon": 5},
    "koopman": {
        "horizon": 20,
        "latent_size": 128,
        "reader": (128, 64),
        "latent_norm": "layer",
        "reward_hidden": (64,),
        "value_head": (128,),
        "proposals": 16,
        "loss_steps": 8,
        "plan_growth": 250,
        "plan_lambda": 0.7,
        "value_at": (1, 3, 7, 20),
    },
}

# With `published`, both have TD-MPC's latent and nothing beside it. mlp is TOLD: two hidden layers of ELU; koopman has
# the spectrum, widths and input scale of the paper's listing, but no mirrored modes: 50 numbers are 25, and don't pair.
PUBLISHED_CORES: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "mlp": (("hidden", 512), ("hidden_layers", 2), ("activation", "elu")),
    "koopman": (
        ("spectrum", "paper"),
        ("spectrum_options", ()),
        ("action_embedding", 64),
        ("action_hidden", (128,)),
        ("input_std", 0.1),
        ("pilot_modes", 0),
        ("action_history", 1),
    ),
}


def tdmpc_arm(dynamics: str, *, published: bool = False, **changes: Any) -> TDMPCConfig:
    """The config of an arm, with these changes; with `published` sizes or those for one CPU core.

    Fewer samples have fewer elites: no more than half of them.
    """
    settings = {**ARMS.get(dynamics, ARMS["mlp"])}
    if published:
        settings |= {**PUBLISHED, "core_options": PUBLISHED_CORES.get(dynamics, ())}
    settings |= changes
    if "samples" in changes and "elites" not in changes:
        settings["elites"] = min(settings.get("elites", TDMPCConfig.elites), max(1, changes["samples"] // 2))
    return TDMPCConfig(dynamics=dynamics, **settings)
