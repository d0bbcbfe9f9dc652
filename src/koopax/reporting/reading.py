"""The results in words: a paragraph at the top of the page, computed from the numbers below it."""

from typing import Any

import numpy as np


def reading(document: dict[str, Any]) -> list[str]:
    """One paragraph per set of data and per task of agents."""
    paragraphs = [_models(data) for data in document["data"]]
    paragraphs += [_agents(task) for task in document["agents"]]
    return [paragraph for paragraph in paragraphs if paragraph]


def _models(data: dict[str, Any]) -> str:
    tested = [model for model in data["models"] if "error" in model]
    if not tested:
        return f"On {data['name']}, no model could be tested."
    ranked = sorted(tested, key=lambda model: _value(model, "mean"))
    best, rest = ranked[0], ranked[1:]
    sentences = [
        f"On {data['name']}, over {data['windows']} test windows, {best['label']} "
        + (f"predicts the next {data['horizon']} steps best: its" if rest else f"predicts {data['horizon']} steps: its")
        + f" states are off by {_with_interval(best)} of the data's variance on average."
    ]
    if rest:
        sentences.append(_comparison(best, rest[0]))
    sentences += [_against_mean(best, data), _growth(best), _diverged(tested), _spectrum(best)]
    return " ".join(sentence for sentence in sentences if sentence)


def _comparison(best: dict[str, Any], second: dict[str, Any]) -> str:
    if not np.isfinite(_value(second, "mean")):
        return f"{second['label']} diverged."
    ratio = _value(second, "mean") / max(_value(best, "mean"), 1e-12)
    follows = f"{second['label']} follows with {_with_interval(second)}, {_short(ratio)} times as much"
    if _value(second, "low") <= _value(best, "high"):
        return f"{follows}; the intervals overlap, so this order could be chance."
    note = "" if best["interval_over"] == "seeds" else ", though one seed says nothing of the next"
    return f"{follows}; the intervals are apart{note}."


def _against_mean(best: dict[str, Any], data: dict[str, Any]) -> str:
    mean = np.array(data["baselines"]["mean"]["state"], float)
    curve = np.array(best["error"]["state"]["mean"], float)
    worse = ~(curve < mean)
    if not worse.any():
        share = curve[-1] / mean[-1]
        return f"At step {len(curve)} it still has {share:.0%} of the error of always predicting the mean."
    if worse[-1]:
        better = np.flatnonzero(~worse)
        since = f"From step {better[-1] + 2} on it" if better.size else "It"
        return f"{since} is no better than always predicting the mean."
    return f"At {worse.sum()} of {len(curve)} steps it is no better than always predicting the mean."


def _growth(best: dict[str, Any]) -> str:
    curve = np.array(best["error"]["state"]["mean"], float)
    first = len(curve) // 10
    if first < 3:
        return ""
    early, late = curve[:first].mean(), curve[-first:].mean()
    if not np.isfinite(late) or not early > 0:
        return ""
    return f"From the first {first} steps to the last {first}, its error goes from {_short(early)} to {_short(late)}."


def _diverged(models: list[dict[str, Any]]) -> str:
    bad = [f"{model['nonfinite']} of {model['label']}'s" for model in models if model["nonfinite"]]
    return f"Predictions that diverged: {', '.join(bad)}." if bad else ""


def _spectrum(best: dict[str, Any]) -> str:
    if "spectrum" not in best:
        return ""
    lives = np.array([life for life in best["spectrum"]["half_life"] if life is not None], float)
    if not lives.size:
        return "None of its modes decays."
    aliased = sum(best["spectrum"]["aliased"])
    note = f"; {aliased} of them alias" if aliased else ""
    count = len(best["spectrum"]["half_life"])
    return f"Its {count} modes lose half their size within {_short(lives.min())} to {_short(lives.max())} steps{note}."


def _agents(task: dict[str, Any]) -> str:
    ranked = sorted(task["groups"], key=lambda group: -(group["final"]["mean"][0] or -np.inf))
    parts = []
    for group in ranked:
        mean, low, high = (group["final"][name][0] for name in ("mean", "low", "high"))
        seeds = len(group["seeds"])
        interval = f" [{_short(low)}, {_short(high)}] over {seeds} seeds" if seeds > 1 else " with one seed"
        parts.append(f"{group['label']} ends at a return of {_short(mean)}{interval}")
    return f"On {task['task']}, {'; '.join(parts)}."


def _value(model: dict[str, Any], name: str) -> float:
    value = model["overall"]["state"][name][0]
    return np.inf if value is None else value


def _with_interval(model: dict[str, Any]) -> str:
    mean, low, high = (_value(model, name) for name in ("mean", "low", "high"))
    return f"{_short(mean)} [{_short(low)}, {_short(high)}]"


def _short(value: float) -> str:
    """Three significant digits, without an exponent where there is no need for one."""
    size = abs(value)
    return f"{value:,.0f}" if 100 <= size < 1e6 else f"{value:#.3g}" if 1e-3 <= size < 100 else f"{value:.2e}"
