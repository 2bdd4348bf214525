"""Reused answers: to equal or similar requests, complete or streamed."""
