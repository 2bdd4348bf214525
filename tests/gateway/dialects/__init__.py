"""Tests of the wire formats; the official SDKs are the oracle."""
