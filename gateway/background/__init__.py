"""Answers that are made while their callers are away: begun, kept up, read, cancelled, ended."""
