"""Wire formats, in both directions: pure, one package per dialect, one hub between them."""
