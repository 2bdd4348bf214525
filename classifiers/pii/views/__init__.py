"""A text as a program would decode or a reader would read it, and the way back to the original."""
