"""Runs the decoder: prefill, decode steps and sampling on one device."""
