"""The engine's two processes: OpenAI-compatible HTTP, and the worker that computes."""
