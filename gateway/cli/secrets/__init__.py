"""`gatewright secrets …`: credentials that are kept sealed, and the keys that seal them."""
