"""Complexity: how likely a request needs a strong model."""
