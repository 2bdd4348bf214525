"""What tables there are, and which version of them a database has."""
