"""Wire formats both ways: pure, one package per dialect, one hub between them."""
