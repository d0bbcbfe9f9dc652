"""Agents: a folder each, with the same file names."""
