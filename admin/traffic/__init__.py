"""The room of traffic: lists of recorded requests, and each request's whole story."""
