"""Organisations, their keys, and the people of the control plane."""
