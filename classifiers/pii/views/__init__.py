"""Views of a text as a program decodes or a reader reads it, mapped back to the original."""
