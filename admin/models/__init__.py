"""Models: what serves requests, and how much of it an expected load would need."""
