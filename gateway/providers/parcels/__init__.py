"""Batch APIs of vendors: requests are uploaded together, results come back later."""
