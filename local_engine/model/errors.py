"""Why a model directory is not served."""


class ModelRefused(ValueError):
    """A model directory is incomplete, unsupported, altered or malformed; nothing of it is used."""
