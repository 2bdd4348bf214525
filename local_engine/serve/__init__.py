"""The engine process: engine facade, OpenAI-compatible HTTP, metrics."""
