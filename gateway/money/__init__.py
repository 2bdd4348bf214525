"""Money: prices, budgets, and reports of what was spent."""
