"""Tests of providers at clouds."""
