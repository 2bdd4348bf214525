"""Who waits and for how long, whose turn it is, and how often a worker does what it has to."""
