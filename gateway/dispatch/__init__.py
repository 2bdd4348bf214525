"""Walks a plan to an answer: attempts, and what decides about the next one."""
