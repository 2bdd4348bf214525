"""The expression language: text to tokens, to a tree, to closures over typed facts."""
