"""`gatewright policy …`: documents, and the life of their versions."""
