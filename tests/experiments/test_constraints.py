"""Hard limits: what a finished cell is known by when the grid goes on."""

import json

import pytest

from koopax.experiments.constraints import ARMS, BUDGETS, jobs_of


@pytest.mark.parametrize("budget", BUDGETS)
def test_what_a_cell_is_made_of_survives_its_file(budget):
    """Else it would be refused, as made with other settings, when the grid is run again."""
    jobs = jobs_of(BUDGETS[budget])
    assert len(jobs) == len(BUDGETS[budget].plants) * len(ARMS)
    for job in jobs:
        assert json.loads(json.dumps(job.made_of, allow_nan=False)) == job.made_of
