"""The first run: from a link in a terminal to a request that was answered, and why it was."""
