"""What the policy is asked, and what becomes of its answer: current targets, facts, a plan."""
