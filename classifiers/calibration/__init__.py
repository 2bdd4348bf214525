"""Calibration: what a score means for one tenant and route, and what it can guarantee."""
