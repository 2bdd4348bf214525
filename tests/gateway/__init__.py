"""Tests of the data plane, a mirror of its packages."""
