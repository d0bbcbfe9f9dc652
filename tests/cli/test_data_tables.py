import numpy as np
from rich.console import Console

from koopax.cli.data_tables import list_table, summary_table
from koopax.collection import list_datasets, make_dataset
from koopax.data import Episodes, summarise


def printed(table, width=80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def noise(*lengths, rewards=True, **options):
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        [rng.normal(size=(n + 1, 3)) for n in lengths],
        [rng.normal(size=(n, 2)) for n in lengths],
        [rng.normal(size=n) for n in lengths] if rewards else None,
        **options,
    )


def test_a_summary_is_for_people():
    episodes = noise(
        120, 80, durations=[np.ones(120), np.full(80, 2)], environment="Hopper-v5", state_names=["x", "y", "z"]
    )
    text = printed(summary_table(summarise(episodes)))
    parts = ("Hopper-v5", "200", "80 to 120", "x", "action_1", "reward", "nominal steps", "1 episodes are too short")
    assert [part for part in parts if part not in text] == []


def test_what_is_wrong_stands_in_the_summary():
    observations = np.zeros((3, 2))
    observations[:, 0] = [np.nan, np.inf, 2]
    text = printed(summary_table(summarise(Episodes.from_arrays([observations], [[[1], [1]]], [[1, 1]], check=False))))
    assert "2 NaN or infinite" in text
    assert "constant" in text


def test_without_rewards_there_is_no_line_of_them():
    lines = printed(summary_table(summarise(noise(9, rewards=False)))).splitlines()
    assert [line.split(maxsplit=1)[1].strip() for line in lines if "returns" in line] == ["the data has no rewards"]
    assert not [line for line in lines if line.strip().startswith("reward") or "mean return" in line]


def test_a_dataset_is_a_line_at_80_columns(own_folders):
    make_dataset("koopax/halfcheetah/medium-expert-v0", steps=20, progress=False, workers=0)
    datasets = list_datasets()
    lines = printed(list_table(datasets)).splitlines()
    for dataset in datasets:
        (line,) = [line for line in lines if dataset["name"] + " " in line]
        assert dataset["environment"] in line
        assert ("20 (0)" in line) == bool(dataset["made"])
    assert len(lines) < 2 * len(datasets)
