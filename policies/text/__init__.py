"""Documents as text: read with every problem and its position, written, edited line by line."""
