"""JSON bodies: parsed strictly, refused if they can be read in two ways, patched in place."""
