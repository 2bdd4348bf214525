"""Identifiers of digits: found in runs, lists, boxes and words, and told by their check digits."""
