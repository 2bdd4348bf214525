"""Runs steps of the scheduler on one device."""
