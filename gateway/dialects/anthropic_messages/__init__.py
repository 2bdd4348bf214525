"""Anthropic's messages: requests, replies, streams and errors."""
