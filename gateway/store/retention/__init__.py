"""Content destroyed because it expired: in each audit folder, once a day, and reported."""
