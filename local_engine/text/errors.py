"""Why a prompt is not accepted."""


class PromptRefused(ValueError):
    """The messages cannot be turned into a prompt of this model."""
