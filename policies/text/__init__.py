"""Documents as text: read with every problem and its place, written, and edited line by line."""
