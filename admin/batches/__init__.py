"""Batches and files for operators: states, lines, expiry, cancelling and deleting."""
