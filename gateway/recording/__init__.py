"""What is recorded of a request: records and their facts, floods, and what crashes leave behind."""
