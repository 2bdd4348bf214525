"""Paged attention, quantised products and other hot loops: each with a torch reference."""
