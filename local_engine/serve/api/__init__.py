"""The engine's HTTP API: requests, read field by field, and answers."""
