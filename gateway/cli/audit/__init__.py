"""`gatewright audit …`: the evidence, what is kept of it, and what is destroyed."""
