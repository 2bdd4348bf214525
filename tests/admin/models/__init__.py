"""Tests of the room of models."""
