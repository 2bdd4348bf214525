"""Figures compared with their own past: what has become unusual. Pure."""
