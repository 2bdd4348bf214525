"""OpenAI's Responses API: requests, replies, streams and errors."""
