"""Keys of recorded content: wrapped, dated, wrapped anew, and destroyed for good."""
