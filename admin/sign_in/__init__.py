"""Signing in and out: by password, an OpenID provider, or the token in the settings."""
