"""The overview: is everything well, what does it cost, and what waits for somebody."""
