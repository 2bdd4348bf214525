"""What can be said of an answer without knowing what is true."""
