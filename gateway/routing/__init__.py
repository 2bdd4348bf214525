"""What policy is asked and what its answer becomes: targets as they are, facts, a plan."""
