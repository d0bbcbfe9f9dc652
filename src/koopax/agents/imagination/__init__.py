"""Soft Actor-Critic in a learned simulator, from a fixed dataset."""
