"""Inspects what a request contains: once, within a deadline, remembered without its content."""
