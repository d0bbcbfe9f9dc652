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
    """Seeds on the expert sets at equal time."""
    other_seeds: int
    """Seeds on the other sets, and at equal steps."""
    datasets: int = 9
    """How many of the nine datasets, experts first."""
    latent_sizes: tuple[int, ...] = (128, 256, 512, 1024)
    """Latent sizes of the ablation."""
    ablation_environments: tuple[str, ...] = ("halfcheetah",)
    """Environments whose expert sets the ablations use."""
    ablation_steps: int = 500
    """Gradient steps of the ablations."""
    ablation_seeds: int = 1
    """Seeds of the ablations."""
    search_seconds: float = 30.0
    """Training time of every arm of the search."""
    search_environments: tuple[str, ...] = ("halfcheetah",)
    """Environments whose expert sets the search uses."""
    speed_horizons: tuple[int, ...] = (10, 50, 100, 200, 500)
    """Horizons at which training speed is measured."""
    speed_batch_size: int = 256
    """Windows in a batch where speed is measured; the paper's at every budget but the smallest."""
    speed_rounds: int = 7
    """Interleaved rounds of the speed measurement."""


BUDGETS = {
    "smoke": Budget(
        4_000,
        2.0,
        4,
        4,
        10,
        50,
        1,
        1,
        datasets=1,
        latent_sizes=(16, 32),
        ablation_steps=4,
        search_seconds=2.0,
        search_environments=("hopper",),
        speed_horizons=(2, 5),
        speed_batch_size=4,
        speed_rounds=3,
    ),
    "cpu": Budget(200_000, 30.0, 200, 16, 100, 2_000, 3, 1, speed_rounds=5),
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
        ablation_steps=100_000,
        ablation_seeds=3,
        search_seconds=1_800.0,
        search_environments=("halfcheetah", "walker2d", "hopper"),
        speed_rounds=21,
    ),
}


def budget(name: str) -> Budget:
    """The budget of that name."""
    if name not in BUDGETS:
        raise unknown_name("budget", name, list(BUDGETS))
    return BUDGETS[name]
