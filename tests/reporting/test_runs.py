"""Reading folders of every condition, and putting those together that belong together."""

import json
import shutil

import pytest
from run_samples import agent_document, old_sac_run, old_tdmpc_run, sac_run, tdmpc_run, write_agent

from koopax._errors import KoopaxError
from koopax.agents import TDMPCConfig
from koopax.reporting.groups import by_data, by_task
from koopax.reporting.runs import ModelRun, read_run, read_runs


def test_seeds_form_a_group_and_data_another(folders):
    runs = read_runs([folders[name] for name in ("koopman-0", "mlp", "koopman-1", "pendulum")])
    assert not runs.problems
    hopper, pendulum = by_data(runs.models)
    assert (hopper.name, pendulum.name) == ("hopper.npz", "pendulum.npz")
    assert [(group.label, [run.seed for run in group.runs]) for group in hopper.groups] == [
        ("koopman", [0, 1]),
        ("mlp", [0]),
    ]


def test_settings_tell_groups_of_one_name_apart(folders, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folders["mlp"], other)
    document = json.loads((other / "config.json").read_text())
    document["train"]["batch_size"] = 7
    (other / "config.json").write_text(json.dumps(document))
    (data,) = by_data(read_runs([folders["mlp"], other]).models)
    assert [group.label for group in data.groups] == ["mlp · batch size 4", "mlp · batch size 7"]


def test_a_folder_of_runs_stands_for_them(folders):
    inside = folders["mlp"].parent
    assert len(read_runs([inside]).models) == 5
    assert len(read_runs([inside, folders["mlp"]]).models) == 5


def test_agents_of_both_kinds(tmp_path):
    runs = read_runs([sac_run(tmp_path / "a"), tdmpc_run(tmp_path / "b"), tdmpc_run(tmp_path / "c", seed=1)])
    found = by_task(runs.agents)
    assert {task: [group.label for group in groups] for task, groups in found.items()} == {
        "Hopper-v5": ["sac"],
        "cheetah-run": ["tdmpc · koopman"],
    }
    (group,) = found["cheetah-run"]
    assert [run.seed for run in group.runs] == [0, 1]
    # Only evaluations count, not the episodes that explored, and environment steps, not decisions.
    assert [point.steps for point in group.runs[0].curve] == [2000, 4000, 6000]
    assert all(point.value > 0 for point in group.runs[0].curve)


def test_agents_of_before_stand_beside_those_of_now(tmp_path):
    makers = (sac_run, old_sac_run, tdmpc_run, old_tdmpc_run)
    runs = read_runs([make(tmp_path / make.__name__) for make in makers])
    assert not runs.problems
    for groups in by_task(runs.agents).values():
        (group,) = groups  # the old run differs from the new one by its seed only
        new, old = group.runs
        assert (new.seed, old.seed, new.kind, new.task) == (0, 1, old.kind, old.task)
        assert [point.steps for point in new.curve] == [point.steps for point in old.curve]
        assert all(point.value > 0 and point.seconds for point in old.curve)


def test_one_reader_for_every_kind(folders, tmp_path):
    assert isinstance(read_run(folders["mlp"]), ModelRun)
    assert read_run(sac_run(tmp_path / "a")).kind == "sac"
    assert read_run(tdmpc_run(tmp_path / "b")).kind == "tdmpc"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"format": 1, "kind": "dqn", "task": "x", "agent": {}}, "kind 'dqn'"),
        ({"format": 9, "kind": "sac", "task": "x", "agent": {}}, "format 9"),
        ({"something": "else"}, "names no kind"),
    ],
)
def test_an_agent_that_can_not_be_read_is_refused_in_a_sentence(document, expected, tmp_path):
    with pytest.raises(KoopaxError, match=expected) as caught:
        read_run(write_agent(tmp_path / "run", document, [{"environment_steps": 1, "evaluation_return": 2.0}]))
    assert "\n" not in str(caught.value)


BROKEN = {
    "empty": (None, "config.json is missing"),
    "cut": ('{"format": 1, "tra', "config.json is damaged"),
    "list": ("[1, 2]", "holds a list"),
    "future": ('{"format": 99, "train": {}, "model": {}}', "has format 99"),
    "older": ('{"format": 0, "train": {}, "model": {}, "data": {}}', "has format 0"),
    "ancient": ('{"train": {}, "model": {}}', "can't be read"),
    "odd": ('{"format": "x", "train": 3, "model": {}, "data": []}', "can't be"),
    "hollow": ('{"format": 1, "train": {}, "model": {}, "data": {}}', "can't be understood"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_read_is_told_and_the_rest_is_read(name, folders, tmp_path):
    text, expected = BROKEN[name]
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    runs = read_runs([tmp_path, folders["sac"]])
    assert len(runs.agents) == 1
    assert not runs.models
    assert [problem.run for problem in runs.problems] == [str(tmp_path)] * len(runs.problems)
    assert expected in runs.problems[-1].message
    with pytest.raises(KoopaxError, match="there is no run to report on") as caught:
        read_runs([tmp_path])
    assert "\n" not in str(caught.value)


def test_an_unfinished_run_keeps_its_curves(folders):
    runs = read_runs([folders["unfinished"]])
    assert runs.models[0].model is None
    assert runs.models[0].metrics
    assert "no finished model" in runs.problems[0].message


def test_an_agent_that_was_not_evaluated_yet(folders, tmp_path):
    write_agent(tmp_path / "new", agent_document(TDMPCConfig()), [{"environment_steps": 3}])
    runs = read_runs([tmp_path / "new", folders["sac"]])
    assert "without evaluations yet" in runs.problems[0].message
