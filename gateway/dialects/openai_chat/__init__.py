"""OpenAI's chat completions: requests, replies, streams and errors."""
