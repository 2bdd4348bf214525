"""The first run: from a link in a terminal to an answered request, and why it was answered so."""
