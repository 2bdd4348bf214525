"""Sensitive data: which identifiers, contacts, secrets, names and addresses a text contains."""
