"""How many environment steps a decision takes in the DeepMind Control suite, as published."""

# For the domains that are not listed, 4.
ACTION_REPEATS = {"cartpole": 8, "finger": 2, "walker": 2, "humanoid": 2, "dog": 2}
DMC_ACTION_REPEAT = 4


def published_action_repeat(identifier: str) -> int:
    """Environment steps per decision for a Gymnasium id: as published for `dm_control/…`, 1 elsewhere."""
    if not identifier.startswith("dm_control/"):
        return 1
    domain = identifier.removeprefix("dm_control/").split("-")[0].split("_")[0]
    return ACTION_REPEATS.get(domain, DMC_ACTION_REPEAT)
