"""Credentials: keys, passwords, short codes, and what only looks like them."""
