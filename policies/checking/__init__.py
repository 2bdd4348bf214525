"""What can be said of a document before it acts: its faults, its dead rules, what it changed."""
