"""JSON bodies: read with exactly one meaning, refused where they have another, patched in place."""
