"""Budgets and cost: what was spent and by whom, what is to come, and how much there may be."""
