"""The audit explorer and the integrity of the log."""
