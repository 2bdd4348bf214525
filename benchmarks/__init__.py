"""What a user can run to see the figures of benchmarks/README.md again."""
