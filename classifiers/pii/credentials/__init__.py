"""Credentials: keys, passwords, short codes, and look-alikes that are none."""
