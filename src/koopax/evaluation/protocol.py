"""How models are tested, wherever it is shown: the terminal and the report agree because both read this."""

WINDOWS = 10_000
"""Test windows, unless asked for others; all there are, where there are fewer."""
SEED = 0
"""Decides the windows, unless asked for others."""
BASELINES = ("constant", "mean")
"""The reference predictors: no change, and the mean of the training data."""
