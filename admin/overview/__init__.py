"""The overview: whether all is well, what it costs, and what is waiting for somebody."""
