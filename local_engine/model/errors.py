"""The error that says why a model directory is refused."""

_LONGEST_REASON = 400


class ModelRefused(ValueError):
    """A model directory is incomplete, unsupported, altered or malformed; nothing of it is used.

    Whatever the directory's own texts contain, the reason is one line that a terminal can show.
    """

    def __init__(self, reason: str) -> None:
        line = "".join(each if each.isprintable() else " " for each in reason)
        is_long = len(line) > _LONGEST_REASON
        super().__init__(f"{line[:_LONGEST_REASON]}…" if is_long else line)
