"""Tests of the room of policies: its pages, its API, and the way from a draft to everybody."""
