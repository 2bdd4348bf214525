"""Tests of the in-house engine."""
