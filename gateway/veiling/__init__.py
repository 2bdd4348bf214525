"""What goes out without values and comes back with them, and what is read on the way back."""
