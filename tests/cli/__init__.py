"""Tests of the command line, as an operator meets it."""
