"""Money: prices, budgets, and what was spent, laid out for people."""
