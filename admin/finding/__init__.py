"""The finder: from typed words to objects, and to what can be done with them."""
