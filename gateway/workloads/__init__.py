"""Callers that prove themselves by a trusted issuer's token instead of a key."""
