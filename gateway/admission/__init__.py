"""What one request may hold, and what in it decides where it may go. Pure."""
