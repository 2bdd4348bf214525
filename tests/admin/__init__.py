"""Tests of the admin listener, over HTTP."""
