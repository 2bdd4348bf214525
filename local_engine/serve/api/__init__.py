"""The engine as HTTP: what is asked, read field by field, and what is answered."""
