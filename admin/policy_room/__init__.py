"""The room of policies: how they are written, weighed, agreed on, rolled out and undone."""
