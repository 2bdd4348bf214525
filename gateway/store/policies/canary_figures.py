"""Counts of all workers with and without a canary: the guard judges by them, pages show them."""

from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.rollout.trials import Arm
from gateway.store.engine import Database
from gateway.store.schema.policies import canary_figures


_C = canary_figures.c
_TRIAL: Final = "/"
"""Between a worker's run and the start of the trial that it reports on."""


class Measured(Struct, frozen=True):
    """One canary's figures, summed over all workers."""

    canary: Arm
    beside: Arm
    workers: int = 0
    """Runs of workers that counted anything; 0 if there are no figures."""
    changed_us: int = 0


class CanaryFigures:
    """Keeps one row per canary and run of a worker."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def report(
        self, level: str, number: int, run: str, canary: Arm, beside: Arm, *, began: int = 0
    ) -> None:
        """Store what one run of a worker has counted so far, replacing its earlier report.

        It is for the trial that began with this deed: a worker that has not noticed yet that it
        began again reports on the previous one.
        """
        run = f"{run}{_TRIAL}{began}"
        here = (_C.level == level) & (_C.number == number) & (_C.run == run)
        said = msgspec.json.encode((canary, beside)).decode()
        values = {"arms": said, "changed_us": self._clock.utc_us()}
        async with self._database.writing() as connection:
            changed = await connection.execute(update(canary_figures).where(here).values(values))
            if changed.rowcount == 0:
                row = {"level": level, "number": number, "run": run} | values
                await connection.execute(insert(canary_figures).values(row))

    async def measured(self, level: str, number: int, *, began: int | None = None) -> Measured:
        """The sum of all runs' reports; of the trial that began then, or of the last one."""
        query = select(_C.run, _C.arms, _C.changed_us)
        query = query.where(_C.level == level, _C.number == number)
        async with self._database.reading() as connection:
            said = (await connection.execute(query)).all()
        if began is None:
            began = max((_trial_of(run) for run, _, _ in said), default=0)
        rows = [(arms, at_us) for run, arms, at_us in said if _trial_of(run) == began]
        canary, beside = Arm(), Arm()
        for text, _ in rows:
            mine, theirs = msgspec.json.decode(text, type=tuple[Arm, Arm])
            canary.add(mine)
            beside.add(theirs)
        return Measured(canary, beside, len(rows), max((at for _, at in rows), default=0))


def _trial_of(run: str) -> int:
    return int(run.rpartition(_TRIAL)[2]) if _TRIAL in run else 0


async def forget_figures(connection: AsyncConnection, level: str, number: int) -> None:
    """A canary begins again: what was counted before is of another time."""
    here = (_C.level == level) & (_C.number == number)
    await connection.execute(delete(canary_figures).where(here))
