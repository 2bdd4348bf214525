"""Answers and conversations that a caller can continue, stored here for its project."""
