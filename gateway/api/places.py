"""Places for bodies that are long and may be slow; one project may have at most half of them.

There are few, since each costs memory. A caller who sends byte by byte keeps one for minutes: if
one project could take all of them, nobody else's files would arrive at all.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import Unavailable
from gateway.projects import Project


class Places:
    """The places of one worker; belongs to one event loop."""

    def __init__(self, most: int, refusal: str) -> None:
        """`refusal` is the message for a caller who gets none."""
        self._free = most
        self._most_of_one = max(most // 2, 1)
        self._refusal = refusal
        self._taken: Counter[Project] = Counter()

    @contextmanager
    def place(self, project: Project) -> Iterator[None]:
        """Hold a place for as long as a body takes.

        Raises:
            Unavailable: all are taken, or as many as one project may have.
        """
        if self._free <= 0 or self._taken[project] >= self._most_of_one:
            raise Unavailable(self._refusal, retry_after_s=1.0)
        self._free -= 1
        self._taken[project] += 1
        try:
            yield
        finally:
            self._free += 1
            self._taken[project] -= 1
            if not self._taken[project]:
                del self._taken[project]
