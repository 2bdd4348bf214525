"""Recorded requests, read back: lists, figures, profiles and rehearsals."""
