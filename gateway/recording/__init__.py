"""What is written down of a request: records and their facts, floods, what is left behind."""
