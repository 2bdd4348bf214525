"""Callers that authenticate with a trusted issuer's token instead of a key."""
