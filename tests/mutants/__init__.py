"""Mutants: small changes to the source that some test should notice."""
