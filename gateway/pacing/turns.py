"""Lets requests that are served at the same time take turns, stage by stage.

A request runs through some four hundred functions, most of them once. If requests run one after the
other, each finds all of these gone from the processor's nearest cache. If many requests all decode,
then all decide, then all send, the second finds what the first has fetched. Their records then also
reach the log in one group. Taking turns costs a turn of the event loop, so a few requests at once
do without.
"""

from collections.abc import Generator
from typing import Final


CROWD: Final = 4
"""With no more requests than this, nobody takes turns."""


class Turns:
    """`await turns` lets requests at the same stage go through it first; for one event loop.

    A request can be cancelled here, so nothing may be half done.
    """

    __slots__ = ("present",)

    def __init__(self) -> None:
        self.present = 0
        """Requests that are being served now; `api.door.Load` counts them."""

    def __await__(self) -> Generator[None, None, None]:
        if self.present > CROWD:
            yield
