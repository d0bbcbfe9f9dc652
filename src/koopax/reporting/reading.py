"""The results in words: what stands at the top of the page, computed from the numbers below it."""

from typing import Any

import numpy as np

from koopax.reporting.numbers import percent, short

UNITS = "in units of the training data's variance"


def reading(document: dict[str, Any]) -> list[str]:
    """Paragraphs on each set of data (what was trained, how it was tested, what came out) and each task of agents."""
    paragraphs = [paragraph for data in document["data"] for paragraph in _models(data)]
    paragraphs += [_agents(task) for task in document["agents"]]
    return [paragraph for paragraph in paragraphs if paragraph]


def _models(data: dict[str, Any]) -> list[str]:
    tested = [model for model in data["models"] if "error" in model]
    if not tested:
        return [_trained(data), f"No model of {data['name']} could be tested{_reasons(data['models'])}."]
    ranked = sorted(tested, key=lambda model: _value(model, "mean"))
    untested = [model for model in data["models"] if "error" not in model]
    left_out = f"Not tested: {', '.join(_with_reason(model) for model in untested)}." if untested else ""
    return [
        _trained(data),
        _joined(_protocol(data, len(tested)), left_out),
        _joined(_ranking(ranked), _where_ahead(ranked), _diverged(tested)),
        _joined(_against_mean(ranked[0], data), _growth(ranked[0])),
        _modes(ranked),
    ]


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _trained(data: dict[str, Any]) -> str:
    """Which models learned what, from which data."""
    models = data["models"]
    labels = _listed([model["label"] for model in models])
    many = len(models) > 1
    summary = data.get("summary")
    told = data["name"]
    if summary and not data.get("changed"):
        environment = f" of {summary['environment']}" if summary.get("environment") else ""
        told += f" ({summary['episodes']:,} episodes{environment}, {summary['steps']:,} steps)"
    what = "states and rewards" if data.get("rewards", True) else "states"
    start = f"{_count(len(models))} models were" if many else "One model was"
    sentence = (
        f"{start} trained on {told}: {labels}. {'Each' if many else 'It'} learned to predict the {what} that follow a "
        "given state, when the actions are known."
    )
    return _joined(sentence, _effort(models))


def _effort(models: list[dict[str, Any]]) -> str:
    """How long each model was trained, without which errors can't be compared."""
    known = [model for model in models if model.get("steps")]
    taken = [f"{model['label']} {model['steps']:,} steps ({short(model['seconds'])} s)" for model in known]
    fitted = [model["label"] for model in models if model.get("core") == "linear" and not model.get("steps")]
    return _joined(
        f"Training took {_listed(taken)}." if taken else "",
        f"{_listed(fitted)} {'were' if len(fitted) > 1 else 'was'} fitted by least squares." if fitted else "",
    )


def _protocol(data: dict[str, Any], tested: int) -> str:
    """How the models were tested and what their errors mean."""
    horizon, windows, summary = data["horizon"], data["windows"], data.get("summary", {})
    kept = summary.get("test_episodes")
    where = f"{kept:,} episode{'s' if kept != 1 else ''}" if kept else "episodes"
    who = "Each model" if tested > 1 else "The model"
    return (
        f"The test: {windows:,} windows of {horizon} steps from {where} kept out of training. {who} is shown the first "
        f"state of a window and all its actions, and predicts the {horizon} states that follow without looking again. "
        f"The error is the mean squared difference from what happened, {UNITS}: 0 is perfect, and always predicting "
        "the mean gives about 1."
    )


def _ranking(ranked: list[dict[str, Any]]) -> str:
    """The best model, the next one, and whether the difference could be chance."""
    best = ranked[0]
    if not np.isfinite(_value(best, "mean")):
        return f"Every model diverged: {_listed([model['label'] for model in ranked])}."
    if len(ranked) == 1:
        return f"The error of {best['label']} is {_with_interval(best)}, averaged over all steps."
    sentences = [f"{best['label']} predicts best: its error is {_with_interval(best)}, averaged over all steps."]
    second = ranked[1]
    if not np.isfinite(_value(second, "mean")):
        return _joined(*sentences, f"{second['label']} diverged.")
    ratio = _value(second, "mean") / max(_value(best, "mean"), 1e-12)
    follows = f"{second['label']} comes second with {_with_interval(second)}, {short(ratio)} times the error"
    if _value(second, "low") <= _value(best, "high"):
        return _joined(*sentences, f"{follows}; the intervals overlap, so this order could be chance.")
    one_seed = best["interval_over"] != "seeds" or second["interval_over"] != "seeds"
    note = ", but with one seed per model they say nothing of how training again would turn out" if one_seed else ""
    return _joined(*sentences, f"{follows}; the intervals do not overlap{note}.")


def _where_ahead(ranked: list[dict[str, Any]]) -> str:
    """At which steps the best model on average is also the best."""
    if len(ranked) < 2:
        return ""
    curves = np.array([_curve(model) for model in ranked])
    first = np.argmin(curves, axis=0) == 0
    best, count = ranked[0]["label"], len(first)
    if first.all():
        return f"{best} is the best at every step."
    rivals = _listed([ranked[i]["label"] for i in np.unique(np.argmin(curves, axis=0)) if i])
    return f"{best} is the best at {first.sum()} of the {count} steps; at {_ranges(~first)}, {rivals} predicts better."


def _ranges(chosen: np.ndarray) -> str:
    """Steps, counted from 1, as few ranges; 'the others' where there are many."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(int)))
    ranges = [(int(a) + 1, int(b)) for a, b in edges.reshape(-1, 2)]
    if len(ranges) > 2:
        return "the others"
    texts = [f"step {a}" if a == b else f"steps {a} to {b}" for a, b in ranges]
    return " and ".join(texts)


def _against_mean(best: dict[str, Any], data: dict[str, Any]) -> str:
    mean = np.array(data["baselines"]["mean"]["state"], float)
    curve = _curve(best)
    worse = ~(curve < mean)
    name, last = best["label"], len(curve)
    if not worse.any():
        share = percent(curve[-1] / mean[-1])
        return f"At step {last}, {name} has {share} of the error of always predicting the mean."
    if worse[-1]:
        better = np.flatnonzero(~worse)
        since = f"From step {better[-1] + 2} on, {name}" if better.size else f"At no step, though, {name}"
        return f"{since} is {'no ' if better.size else ''}better than always predicting the mean."
    return f"At {worse.sum()} of {last} steps, {name} is no better than always predicting the mean."


def _growth(best: dict[str, Any]) -> str:
    curve = _curve(best)
    first = len(curve) // 10
    if first < 3:
        return ""
    early, late = curve[:first].mean(), curve[-first:].mean()
    if not np.isfinite(late) or not early > 0:
        return ""
    return f"Its error is {short(early)} over the first {first} steps and {short(late)} over the last {first}."


def _diverged(models: list[dict[str, Any]]) -> str:
    bad = [f"{model['nonfinite']:,} of {model['label']}'s" for model in models if model["nonfinite"]]
    return f"Predictions that diverged (became infinite): {', '.join(bad)}." if bad else ""


def _modes(ranked: list[dict[str, Any]]) -> str:
    """Which modes carry the motion of the best model that has any."""
    model = next((model for model in ranked if "spectrum" in model), None)
    if model is None:
        return ""
    sentence = model["spectrum"]["sentence"]
    return f"The modes of {model['label']}, which is a Koopman model: {sentence[0].lower()}{sentence[1:]}"


def _agents(task: dict[str, Any]) -> str:
    ranked = sorted(task["groups"], key=lambda group: -(group["final"]["mean"][0] or -np.inf))
    parts = []
    for group in ranked:
        mean, low, high = (group["final"][name][0] for name in ("mean", "low", "high"))
        seeds = len(group["seeds"])
        interval = f" ({short(low)} to {short(high)}, {seeds} seeds)" if seeds > 1 else " (one seed)"
        steps = f" after {group['steps'][-1]:,.0f} steps" if group.get("steps") else ""
        parts.append(f"{group['label']} reaches {short(mean)}{interval}{steps}")
    who = f"{_count(len(ranked))} agents" if len(ranked) > 1 else "One agent"
    return (
        f"{who} learned by acting in {task['task']}. By the return (sum of rewards, higher is better) of the last "
        f"evaluation, {'; '.join(parts)}."
    )


def _reasons(models: list[dict[str, Any]]) -> str:
    reasons = list(dict.fromkeys(model["untested"] for model in models if model.get("untested")))
    return f": {_listed(reasons)}" if reasons else ""


def _with_reason(model: dict[str, Any]) -> str:
    return f"{model['label']} ({model['untested']})" if model.get("untested") else model["label"]


def _count(number: int) -> str:
    return {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}.get(number, str(number))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _curve(model: dict[str, Any]) -> np.ndarray:
    """State errors step by step; infinite where the page has null."""
    curve = np.array(model["error"]["state"]["mean"], float)
    return np.where(np.isnan(curve), np.inf, curve)


def _value(model: dict[str, Any], name: str) -> float:
    value = model["overall"]["state"][name][0]
    return np.inf if value is None else value


def _with_interval(model: dict[str, Any]) -> str:
    mean, low, high = (_value(model, name) for name in ("mean", "low", "high"))
    over = {"seeds": "over seeds", "test episodes": "over test episodes"}[model["interval_over"]]
    return f"{short(mean)} (95\u00a0% interval {over}: {short(low)} to {short(high)})"
