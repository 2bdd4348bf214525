"""What a running worker does beside requests, and says of itself."""
