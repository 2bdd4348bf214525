"""The room of models: what serves requests, and how much of it a load would need."""
