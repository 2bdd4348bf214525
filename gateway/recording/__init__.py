"""Records of requests: their contents and facts, floods of refusals, and the work after the end."""
