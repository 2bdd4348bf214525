"""What can be judged of an answer without knowing the truth."""
