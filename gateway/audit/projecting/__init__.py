"""From segments to the readers of records: in order, in batches, each exactly once."""
