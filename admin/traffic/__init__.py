"""Traffic: lists of recorded requests, and each request's story."""
