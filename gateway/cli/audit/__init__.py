"""`gatewright audit …`: the evidence, its retention, and its erasure."""
