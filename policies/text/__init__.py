"""Documents as text: read with every problem and its place, written, and changed line by line."""
