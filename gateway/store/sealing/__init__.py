"""Secrets sealed in the database, what depends on a master key, and how it is replaced."""
