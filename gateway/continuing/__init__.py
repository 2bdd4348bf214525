"""Answers and conversations that a caller may continue: kept here, for its project."""
