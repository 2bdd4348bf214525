"""Secrets: a type that hides them, the places they come from, and keys that wrap keys."""
