"""Callers without a key of ours: tokens of issuers that the settings trust."""
