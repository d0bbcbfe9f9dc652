"""The words at the top say what the numbers say."""

import copy

from koopax.reporting.reading import reading


def model(label, level, *, spread=0.01, **more):
    def band(value):
        return {"mean": [value], "low": [value - spread], "high": [value + spread]}

    curve = [level] * 20
    return {
        "label": label,
        "overall": {"state": band(level)},
        "error": {"state": {"mean": curve}},
        "interval_over": "seeds",
        "nonfinite": 0,
        **more,
    }


def document(*models, **more):
    baselines = {"mean": {"state": [1.0] * 20}}
    summary = {"environment": "Pendulum-v1", "episodes": 8, "steps": 1600, "test_episodes": 2}
    data = {"name": "swings", "windows": 40, "horizon": 20, "models": list(models), "baselines": baselines}
    return {"data": [data | {"rewards": True, "summary": summary} | more], "agents": []}


def told(*models, **more):
    return "\n".join(reading(document(*models, **more))).replace("\u00a0", " ")


def test_says_what_was_trained_on_what_and_how_it_was_tested():
    text = told(model("mlp", 0.3), model("koopman", 0.1))
    assert text.startswith(
        "Two models were trained on swings (8 episodes of Pendulum-v1, 1,600 steps): mlp and koopman."
    )
    assert "predict the states and rewards that follow" in text
    assert "40 windows of 20 steps from 2 episodes kept out of training" in text
    assert "predict the states that follow" in told(model("mlp", 0.3), rewards=False)
    assert "Training took mlp 1,200 steps (15.0 s)." in told(model("mlp", 0.3, steps=1200, seconds=15.04))
    assert "dmdc was fitted by least squares." in told(model("dmdc", 0.3, core="linear", steps=0))


def test_names_the_best_and_by_how_much():
    text = told(model("mlp", 0.3), model("koopman", 0.1))
    assert "koopman predicts best: its error is 0.100 (95 % interval over seeds: 0.0900 to 0.110)" in text
    assert "mlp comes second with 0.300" in text
    assert "3.00 times the error; the intervals do not overlap." in text
    assert "koopman is the best at every step." in text
    assert "At step 20, koopman has 10 % of the error of always predicting the mean" in text
    assert "one seed per model" in told(model("mlp", 0.3), model("koopman", 0.1, interval_over="test episodes"))


def test_does_not_call_what_is_too_close():
    text = told(model("mlp", 0.11, spread=0.05), model("koopman", 0.1, spread=0.05))
    assert "could be chance" in text


def test_tells_which_model_wins_where():
    early, late = model("mlp", 0.3), model("koopman", 0.1)
    early["error"]["state"]["mean"] = [0.05] * 4 + [0.4] * 16
    text = told(early, late)
    assert "koopman is the best at 16 of the 20 steps; at steps 1 to 4, mlp predicts better." in text
    early["error"]["state"]["mean"] = [0.05, 0.4] * 10
    assert "koopman is the best at 10 of the 20 steps; at the others, mlp predicts better." in told(early, late)


def test_tells_where_a_model_stops_being_of_use():
    bad = model("mlp", 0.5)
    for curve, expected in (
        ([0.1] * 7 + [2.0] * 13, "From step 8 on, mlp is no better than always predicting the mean."),
        ([0.1] * 7 + [2.0] * 3 + [0.1] * 10, "At 3 of 20 steps, mlp is no better"),
        ([2.0] * 20, "At no step, though, mlp is better than always predicting the mean."),
    ):
        bad["error"]["state"]["mean"] = curve
        assert expected in told(bad)


def test_tells_of_divergence():
    gone = copy.deepcopy(model("mlp", 0.5, nonfinite=3))
    gone["overall"]["state"] = {"mean": [None], "low": [None], "high": [None]}
    gone["error"]["state"]["mean"] = [0.1] * 10 + [None] * 10
    text = told(gone, model("koopman", 0.1))
    assert text.index("koopman predicts best") < text.index("mlp diverged")
    assert "3 of mlp's" in text
    assert "Every model diverged: mlp." in told(gone)


def test_no_pronoun_stands_for_a_model_of_the_sentence_before_another_was_named():
    text = told(model("mlp", 0.3), model("koopman", 0.1))
    assert " it still has" not in text
    for sentence in text.replace("\n", " ").split(". "):
        assert not sentence.startswith("Its modes")


def test_agents():
    final = {"mean": [700.0], "low": [650.0], "high": [750.0]}
    agents = [{"task": "cheetah-run", "groups": [{"label": "tdmpc", "seeds": [0, 1], "steps": [9000], "final": final}]}]
    (text,) = reading({"data": [], "agents": agents})
    assert text.startswith("One agent learned by acting in cheetah-run.")
    assert "tdmpc reaches 700 (650 to 750, 2 seeds) after 9,000 steps" in text


def test_says_why_nothing_was_tested():
    changed = {"label": "mlp", "untested": "its data has changed since training"}
    untested = [{"name": "swings", "models": [changed], "changed": True}]
    trained, reason = reading({"data": untested, "agents": []})
    assert trained.startswith("One model was trained on swings: mlp.")
    assert reason == "No model of swings could be tested: its data has changed since training."
    assert "Not tested: mlp (its data has changed since training)." in told(model("koopman", 0.1), changed)
