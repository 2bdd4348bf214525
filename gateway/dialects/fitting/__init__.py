"""Rephrases, leaves out or refuses what a target's dialect or model cannot express."""
