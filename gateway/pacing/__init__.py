"""Time and turns: who waits for how long, and how often a worker does its duties."""
