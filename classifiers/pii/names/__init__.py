"""Names and addresses: a learned guess, and the words that speak for and against it."""
