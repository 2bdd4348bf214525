"""The tree of organisations and its keys, and the people of the control plane."""
