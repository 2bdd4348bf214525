"""Batch APIs of vendors: lines go up together, and their results come back later."""
