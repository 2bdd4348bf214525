"""The system room."""
