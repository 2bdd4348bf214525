"""Tests of the first run."""
