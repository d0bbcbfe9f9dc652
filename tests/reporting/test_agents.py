"""What a report tells of agents that plan."""

import base64

from run_samples import sac_run, tdmpc_run

from koopax.reporting.agents import FILM, describe
from koopax.reporting.runs import read_runs


def test_plans_model_errors_and_films_are_told(tmp_path):
    run = tdmpc_run(tmp_path / "planned")
    (run / FILM).write_bytes(b"film")
    ((told,),) = [task["groups"] for task in describe(read_runs([run]).agents)]
    (planning,) = told["planning"]
    assert planning["steps"] == [1000, 2000, 3000, 4000, 5000, 6000]
    assert planning["lengths"] == [1, 2, 3, 4, 5, 6]
    assert planning["errors"] == [0.6, 1.2]
    assert base64.b64decode(told["videos"][0]["mp4"]) == b"film"


def test_an_agent_without_plans_has_none(tmp_path):
    ((told,),) = [task["groups"] for task in describe(read_runs([sac_run(tmp_path / "sac")]).agents)]
    assert told["planning"] == told["videos"] == []


def test_lines_that_are_no_numbers_are_passed_over(tmp_path):
    run = tdmpc_run(tmp_path / "odd")
    lines = (run / "metrics.jsonl").read_text().replace('"plan_length": 6', '"plan_length": "6"')
    (run / "metrics.jsonl").write_text(lines.replace("[0.5, 1.0]", '["a"]'))
    ((told,),) = [task["groups"] for task in describe(read_runs([run]).agents)]
    assert told["planning"][0]["lengths"] == [1, 2, 3, 4, 5]
    assert told["planning"][0]["errors"] == [0.4, 0.8]
