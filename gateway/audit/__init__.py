"""Evidence: durable chained segments on disk, their verifier, their way into a database."""
