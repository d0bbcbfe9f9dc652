"""Soft Actor-Critic from pixels, alone or with self-predictive representations."""
