"""Secrets sealed in the database, what hangs on a master key, and another one in its place."""
