"""Teams: whose keys they are, who runs them, what they spend, and what new keys get."""
