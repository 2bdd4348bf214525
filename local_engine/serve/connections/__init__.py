"""The listener's connections: how many there are, and how slowly each may go."""
