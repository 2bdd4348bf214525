"""Identifiers made of digits: found in runs, lists, boxes and words, and proved by check digits."""
