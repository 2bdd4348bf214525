"""Replaces values in requests, restores them in answers, and scans answers."""
