"""What a running worker does besides serving requests, and what it reports of itself."""
