"""The expression language: from text to tokens, to a tree, to closures over typed facts."""
