"""Stored content, and who decides about it: holds, reveals, incidents, reviews."""
