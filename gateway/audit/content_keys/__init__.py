"""Keys of recorded content: wrapped, dated, rewrapped, and destroyed for good."""
