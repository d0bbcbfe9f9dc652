"""Latent dynamics cores and the models around them."""
