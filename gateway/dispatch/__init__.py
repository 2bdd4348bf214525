"""Turns a plan into an answer: attempts at targets, and the choice of the next one."""
