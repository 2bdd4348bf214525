"""Figures against their own past: what has become unusual. Pure."""
