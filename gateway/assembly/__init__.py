"""Settings → parts of a worker, each built in one place."""
