"""Sensitive data: which identifiers, contacts and secrets a text contains."""
