"""Trained models as environments: one, or thousands of copies in one compiled call."""
