"""What can be said of a document before it takes effect: faults, dead rules, changes."""
