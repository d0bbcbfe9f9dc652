"""The modes in words: which carry the motion, and plainly so when none does."""

import numpy as np
import pytest

from koopax.evaluation.spectrum import SpectrumAnalysis
from koopax.reporting.modes import sentence, table, words


def spectrum(half_life, period):
    half_life, period = np.array(half_life, float), np.array(period, float)
    discrete = np.exp(-np.log(2) / half_life + 2j * np.pi / period)
    return SpectrumAnalysis(np.log(discrete), discrete, 1.0, half_life, period, np.zeros(len(period), bool))


FOUR = spectrum([100, 50, 20, 10], [40, np.inf, 12, 4])


def test_one_mode_dominates():
    text = sentence(FOUR, np.array([0.1, 0.2, 0.6, 0.1])).replace("\u00a0", " ")
    assert text == (
        "One of 4 modes dominates: it carries 60 % of the predicted motion; "
        "it turns once in 12.0 steps and loses half its size in 20.0 steps."
    )


def test_a_few_share_it():
    text = sentence(FOUR, np.array([0.4, 0.3, 0.2, 0.1]))
    assert text.startswith("No single mode dominates, but few are needed: 2 of 4 modes")
    assert "does not turn" in sentence(FOUR, np.array([0.3, 0.4, 0.2, 0.1]))


def test_says_plainly_when_no_mode_dominates():
    count = 40
    even = spectrum(np.linspace(5, 50, count), np.linspace(3, 30, count))
    text = sentence(even, np.full(count, 1 / count))
    assert text.startswith("No mode dominates")
    assert "it takes 20 of 40 modes" in text


def test_without_importance_the_slowest_come_first():
    assert "not known" in sentence(FOUR, None)
    assert [row["half_life"] for row in table(FOUR, None)] == [100, 50, 20, 10]
    assert table(FOUR, None)[0]["share"] is None


def test_the_table_has_the_largest_shares_first_and_sums_them():
    rows = table(FOUR, np.array([0.1, 0.2, 0.6, 0.1]))
    assert [row["share"] for row in rows] == [0.6, 0.2, 0.1, 0.1]
    assert [row["cumulative"] for row in rows] == pytest.approx([0.6, 0.8, 0.9, 1.0])
    assert rows[0]["period"] == 12


@pytest.mark.parametrize(
    ("period", "half_life", "expected"),
    [
        (10.0, 25.0, "turns 2.5 times within its half-life"),
        (100.0, 5.0, "fades before it has turned"),
        (np.inf, 5.0, "fades without turning"),
        (8.0, np.inf, "turns without fading"),
        (np.inf, np.inf, "stays as it is"),
    ],
)
def test_a_mode_in_words(period, half_life, expected):
    assert words(period, half_life, aliased=False) == expected
    assert "aliased" in words(period, half_life, aliased=True)
