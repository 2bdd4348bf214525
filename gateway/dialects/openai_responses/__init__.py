"""OpenAI's responses: requests, replies, streams and errors."""
