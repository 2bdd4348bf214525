"""The process that computes, and those that share a model with it."""
