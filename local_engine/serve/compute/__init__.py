"""The process that computes, and those it shares a model with."""
