"""The listener's connections: how many, and how slow each may be."""
