"""Answers that are given again: exact or near, whole or streamed."""
