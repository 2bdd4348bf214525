"""Attention over pages and products with fixed weights, each with a torch reference."""
