"""The settings: what can be configured, how it is read, and how much of it may be shown."""
