"""Real coding agents at a gateway; `make agents` starts these tests, `make test` does not."""
