"""Kept content and who may decide about it: holds, reveals, incidents, reviews."""
