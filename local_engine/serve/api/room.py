"""How many requests wait for a body or a model at once."""

from local_engine.serve.api.errors import Unavailable


class Room:
    """Entered by each of them. Who asks how the engine is waits for nothing, and needs none."""

    __slots__ = ("_left",)

    def __init__(self, most: int) -> None:
        self._left = most

    def __enter__(self) -> None:
        """Raises `Unavailable` where there is none left."""
        if not self._left:
            message = "The engine serves as many requests as it may."
            raise Unavailable(message, code="busy", retry_after_s=1)
        self._left -= 1

    def __exit__(self, *_: object) -> None:
        self._left += 1
