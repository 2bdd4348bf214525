"""Benchmarks that a user can run to reproduce the figures of benchmarks/README.md."""
