"""Keys and teams: who may ask for what, until when, and how much."""
