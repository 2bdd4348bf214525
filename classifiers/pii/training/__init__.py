"""How the tagger is trained: generated text, the shared training files, a small network in numpy."""
