"""JSON bodies: read with exactly one meaning, refused if there are two, patched in place."""
