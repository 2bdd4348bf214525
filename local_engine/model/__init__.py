"""Specification, decoder, weights and their manifest."""
