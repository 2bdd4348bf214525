"""What policy is asked, and what follows from its answer: current targets, facts, a plan."""
