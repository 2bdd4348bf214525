"""Signing in and out: by password, by an OpenID provider, by the token of the settings."""
