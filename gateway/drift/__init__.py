"""Compares figures with their own past and finds what has become unusual. Pure."""
