"""Limits on one request, and the parts of it that decide where it may go. Pure."""
