"""What a request contains: read once, within a deadline, and remembered without its content."""
