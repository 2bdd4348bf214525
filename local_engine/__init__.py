"""The in-house inference engine: its own process behind an OpenAI-compatible HTTP API."""
