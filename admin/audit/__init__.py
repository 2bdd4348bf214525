"""The audit log for people to explore, and the checks that it is complete."""
