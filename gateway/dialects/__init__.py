"""Wire formats in both directions: one pure package per dialect, and a hub between them."""
