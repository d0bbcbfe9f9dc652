"""Soft Actor-Critic from states."""
