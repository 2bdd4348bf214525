"""Pure classifiers: what a text contains and how hard it is."""
