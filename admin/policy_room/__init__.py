"""Policies: how they are written, tested, approved, rolled out and rolled back."""
