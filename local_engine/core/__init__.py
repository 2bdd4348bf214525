"""Sequences, blocks and the scheduler; pure Python, without torch."""
