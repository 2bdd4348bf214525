"""What frameworks really send, kept as shapes, and what the gateway makes of each."""
