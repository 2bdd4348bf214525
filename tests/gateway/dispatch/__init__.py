"""Tests of the way out: egress, adapters and their registry."""
