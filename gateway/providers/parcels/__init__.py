"""Batch APIs of vendors: lines are uploaded together, results come back later."""
