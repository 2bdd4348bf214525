"""`gatewright secrets …`: sealed credentials, and the keys that seal them."""
