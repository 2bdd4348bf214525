"""Budgets, limits, prices, and what was spent."""
