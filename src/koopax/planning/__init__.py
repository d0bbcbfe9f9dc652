"""Planners, and what they see of a model: one file each."""
