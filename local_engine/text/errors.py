"""The error that says why a prompt is refused."""


class PromptRefused(ValueError):
    """The messages cannot be turned into a prompt of this model."""
