"""Calibration: what a score means for one tenant and route, and what may be promised of it."""
