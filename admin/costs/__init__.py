"""Budgets and cost: who spent what, what is forecast, and the limits."""
