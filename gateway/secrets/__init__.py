"""Secrets: a type that does not show them, the places they come from, and keys that wrap keys."""
