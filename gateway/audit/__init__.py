"""Evidence: durable, chained segments on disk, their verifier, their projection into a database."""
