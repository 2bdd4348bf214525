"""Tests of how settings become the parts of a worker."""
