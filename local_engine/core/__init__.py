"""Sequences, sampling params and the scheduler; pure Python, without torch."""
