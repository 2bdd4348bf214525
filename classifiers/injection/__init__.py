"""How much a text that nobody vouches for reads like orders to a model. Advice, never a barrier."""
