"""Batches and files as people look after them: states, lines, expiry, cancelling and deleting."""
