"""Timing and turns: waiting lines, rates, and the rhythm of a worker's background duties."""
