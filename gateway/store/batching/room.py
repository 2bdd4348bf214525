"""Measures what a project's batches hold, under a lock when another batch is about to be made."""

from sqlalchemy import ScalarSelect, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import ACTIVE
from gateway.projects import Project
from gateway.store.batching.leads import RECEIVING
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.owned import is_of
from gateway.store.schema.tables import projects


async def held(connection: AsyncConnection, project: Project, now_us: int) -> tuple[int, int]:
    """The total length of a project's lines in batches, and how many of them are open.

    A batch still arriving counts with what has arrived. Batches that the project forgot, and only a
    hold keeps, do not count.
    """
    is_kept = batches.c.keep_until_us > now_us
    is_arriving = and_(batches.c.state == RECEIVING, is_kept)
    is_open = func.count().filter(or_(batches.c.state.in_(ACTIVE), is_arriving))
    length_bytes = func.sum(batches.c.size_bytes).filter(is_kept)
    query = select(func.coalesce(length_bytes, 0), is_open).where(*is_of(batches, project))
    held_bytes, count = (await connection.execute(query)).one()
    return int(held_bytes), count


async def held_alone(connection: AsyncConnection, project: Project, now_us: int) -> tuple[int, int]:
    """The same, under a lock of the project that is held until the transaction ends."""
    its = select(projects.c.name).where(
        projects.c.organisation == project.organisation,
        projects.c.workspace == project.workspace,
        projects.c.name == project.name,
    )
    # Rows that refer to the project may still be added meanwhile.
    await connection.execute(its.with_for_update(key_share=True))
    return await held(connection, project, now_us)


def answers_bytes(batch_id: str) -> ScalarSelect[int]:
    """The total length of a batch's answers, as they are kept with its lines."""
    length_bytes = func.coalesce(func.sum(func.length(batch_lines.c.sealed_end)), 0)
    return select(length_bytes).where(batch_lines.c.batch_id == batch_id).scalar_subquery()
