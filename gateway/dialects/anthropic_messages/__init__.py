"""Anthropic's Messages API: requests, replies, streams and errors."""
