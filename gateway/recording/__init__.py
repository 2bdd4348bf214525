"""Records of requests, their facts, floods of refusals, and the work after a request's end."""
