"""Tests of the room of keys and teams."""
