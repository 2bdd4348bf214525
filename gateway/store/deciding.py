"""Records another person's decision on what one person asked for: once, in whichever table."""

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import ACTOR_CHARS_MAX
from gateway.errors import RequestInvalid


Asked = TypeVar("Asked", bound=Struct)
"""A request with the fields that `decided` fills."""


def decided(asked: Asked, state: str, actor: str, comment: str, now_us: int) -> Asked:
    """The request with its decision."""
    by = actor[:ACTOR_CHARS_MAX]
    return replace(asked, state=state, decided_by=by, comment=comment, decided_us=now_us)


async def write_decided(
    connection: AsyncConnection, change: Update, after: Any, *, said: str, parameter: str = "id"
) -> None:
    """Change what still waits; `said` is the error if somebody else decided at the same moment.

    Raises:
        RequestInvalid: somebody did.
    """
    names = ("state", "decided_by", "comment", "decided_us")
    values = {name: getattr(after, name) for name in names}
    if not (await connection.execute(change.values(values))).rowcount:
        raise RequestInvalid(f"{said} was decided meanwhile", parameter=parameter)
