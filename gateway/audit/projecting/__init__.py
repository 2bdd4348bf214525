"""From segments to whoever reads records: in order, in batches, each exactly once."""
