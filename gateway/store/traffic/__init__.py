"""What was recorded, read back: lists, figures, profiles and rehearsals."""
