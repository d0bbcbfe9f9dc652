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


def document(*models):
    baselines = {"mean": {"state": [1.0] * 20}}
    data = {"name": "pendulum", "windows": 40, "horizon": 20, "models": list(models), "baselines": baselines}
    return {"data": [data], "agents": []}


def test_names_the_best_and_by_how_much():
    (text,) = reading(document(model("mlp", 0.3), model("koopman", 0.1)))
    assert "koopman predicts the next 20 steps best" in text
    assert "0.100 [0.0900, 0.110]" in text
    assert "mlp follows with 0.300" in text
    assert "3.00 times as much; the intervals are apart." in text
    assert "10% of the error of always predicting the mean" in text


def test_does_not_call_what_is_too_close():
    (text,) = reading(document(model("mlp", 0.11, spread=0.05), model("koopman", 0.1, spread=0.05)))
    assert "could be chance" in text


def test_tells_where_a_model_stops_being_of_use():
    bad = model("mlp", 0.5)
    for curve, expected in (
        ([0.1] * 7 + [2.0] * 13, "From step 8 on it is no better than always predicting the mean."),
        ([0.1] * 7 + [2.0] * 3 + [0.1] * 10, "At 3 of 20 steps it is no better"),
        ([2.0] * 20, " It is no better than always predicting the mean."),
    ):
        bad["error"]["state"]["mean"] = curve
        (text,) = reading(document(bad))
        assert expected in text


def test_tells_of_divergence():
    gone = copy.deepcopy(model("mlp", 0.5, nonfinite=3))
    gone["overall"]["state"] = {"mean": [None], "low": [None], "high": [None]}
    gone["error"]["state"]["mean"] = [0.1] * 10 + [None] * 10
    (text,) = reading(document(gone, model("koopman", 0.1)))
    assert text.index("koopman predicts") < text.index("mlp diverged")
    assert "3 of mlp's" in text


def test_agents_and_nothing_to_say():
    final = {"mean": [700.0], "low": [650.0], "high": [750.0]}
    agents = [{"task": "cheetah-run", "groups": [{"label": "tdmpc", "seeds": [0, 1], "final": final}]}]
    (text,) = reading({"data": [], "agents": agents})
    assert text == "On cheetah-run, tdmpc ends at a return of 700 [650, 750] over 2 seeds."
    untested = [{"name": "pendulum", "models": [{"label": "mlp"}]}]
    assert reading({"data": untested, "agents": []}) == ["On pendulum, no model could be tested."]
