"""Training of the tagger: generated text, shared files, a small network in numpy."""
