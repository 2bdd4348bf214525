"""Tests of secrets and envelopes."""
