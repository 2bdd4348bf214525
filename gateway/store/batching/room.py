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
    """How long a project's lines in batches are together, and how many of those are open.

    What is still arriving counts as what has arrived. What it forgot, and only a hold keeps, takes
    no room of it.
    """
    is_kept = batches.c.keep_until_us > now_us
    is_arriving = and_(batches.c.state == RECEIVING, is_kept)
    is_open = func.count().filter(or_(batches.c.state.in_(ACTIVE), is_arriving))
    length_bytes = func.sum(batches.c.size_bytes).filter(is_kept)
    query = select(func.coalesce(length_bytes, 0), is_open).where(*is_of(batches, project))
    held_bytes, count = (await connection.execute(query)).one()
    return int(held_bytes), count


async def held_alone(connection: AsyncConnection, project: Project, now_us: int) -> tuple[int, int]:
    """The same; who else asks so for this project waits until the transaction is over."""
    its = select(projects.c.name).where(
        projects.c.organisation == project.organisation,
        projects.c.workspace == project.workspace,
        projects.c.name == project.name,
    )
    # Other rows may name the project meanwhile.
    await connection.execute(its.with_for_update(key_share=True))
    return await held(connection, project, now_us)


def answers_bytes(batch_id: str) -> ScalarSelect[int]:
    """How long the answers of a batch are together, as they are kept with its lines."""
    length_bytes = func.coalesce(func.sum(func.length(batch_lines.c.sealed_end)), 0)
    return select(length_bytes).where(batch_lines.c.batch_id == batch_id).scalar_subquery()
