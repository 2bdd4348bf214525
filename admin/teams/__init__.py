"""Teams: their keys, their owners, their spending, and the defaults of new keys."""
