"""The control plane: its own application on its own listener."""
