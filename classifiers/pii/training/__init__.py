"""How the tagger is trained: generated text, shared files, a small network in numpy."""
