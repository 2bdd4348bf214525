"""The tables, and which version of them a database has."""
