"""Secrets: a type that does not show them, places they come from, and keys that wrap keys."""
