"""Values replaced on the way out and restored on the way back, and answers scanned."""
