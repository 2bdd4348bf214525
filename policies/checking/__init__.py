"""Checks of a policy document before it takes effect: errors, rules without effect, changes."""
