"""The finder: what is typed, as ways to objects and to what can be done with them."""
