"""Training of the complexity artefact: data, linear heads, the stack over them, reports."""
