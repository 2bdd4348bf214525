"""The schema's way up and down on both databases."""
