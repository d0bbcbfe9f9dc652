"""How much an experiment may cost: `smoke` for tests, `cpu` for two cores and hours, `paper` as published."""

from dataclasses import dataclass

from koopax._errors import unknown_name


@dataclass(frozen=True)
class Budget:
    """The size of the prediction experiments."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time where models are compared at equal time."""
    steps: int
    """Gradient steps where models are compared at equal steps."""
    batch_size: int
    """Windows in a batch."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Test windows."""
    seeds: int
    """Seeds on the expert sets."""
    other_seeds: int
    """Seeds on the other sets."""
    datasets: int = 9
    """How many of the nine datasets, experts first."""
    latent_sizes: tuple[int, ...] = (128, 256, 512, 1024)
    """Latent sizes of the ablation."""
    ablation_environments: tuple[str, ...] = ("halfcheetah",)
    """Environments whose expert sets the ablations use."""


BUDGETS = {
    "smoke": Budget(4_000, 2.0, 4, 4, 10, 50, 1, 1, datasets=1, latent_sizes=(16, 32)),
    "cpu": Budget(200_000, 90.0, 600, 64, 100, 5_000, 3, 1),
    "paper": Budget(
        1_000_000,
        7_200.0,
        100_000,
        256,
        100,
        50_000,
        3,
        3,
        ablation_environments=("halfcheetah", "walker2d", "hopper"),
    ),
}


def budget(name: str) -> Budget:
    """The budget of that name."""
    if name not in BUDGETS:
        raise unknown_name("budget", name, list(BUDGETS))
    return BUDGETS[name]
