"""Money: what things cost, what may be spent, and what was, laid out for people."""
