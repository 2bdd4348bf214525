"""Who is named, and where they live: a learned guess, and the words for and against it."""
