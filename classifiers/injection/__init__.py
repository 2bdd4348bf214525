"""Scores how much an untrusted text reads like orders to a model. Advice, never a barrier."""
