"""What arrived late is counted exactly, whoever dies or fails where; and a hold goes before it."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.batches import Batch, Line
from gateway.errors import NotReady
from gateway.store.custody.orders import Custody
from gateway.store.erasure.cases import CLAIM_US
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.kept_holdings import Holding
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.schema.custody import erasure_attempts
from tests.faults.served import KILLED
from tests.gateway.store.erasure.kept_archive import body, line, result
from tests.gateway.store.erasure.test_late_arrivals import NONE, Late, late


pytestmark = pytest.mark.anyio
__all__ = ["late"]
KEPT, ARRIVALS = "gateway.store.erasure.kept_content", "gateway.store.erasure.late_arrivals"
STEPS = {
    "claimed": f"killed('{ARRIVALS}:LateArrivals._claim', after=True)",
    "noted": f"killed('{KEPT}:KeptContent.destroy')",
    "listed": f"killed('{KEPT}:add', after=True)",
    "one file gone": f"killed('{KEPT}:KeptContent._take_from', after=True)",
    "files gone": f"killed('{KEPT}:KeptContent._apply')",
    "destroyed": f"killed('{KEPT}:KeptContent.destroy', after=True)",
    "released": f"killed('{ARRIVALS}:LateArrivals._release', after=True)",
}
TENDS = """
import asyncio, pathlib, sys
from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.configuration.reading import load_settings
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.engine import open_database
async def tends():
    settings, log = load_settings(pathlib.Path(sys.argv[1])), MemoryAuditLog()
    await log.start()
    database = open_database(settings.database_url)
    await LateArrivals(settings, database, log, StoppedClock()).tend()
asyncio.run(tends())
"""


async def over(late: Late, file_id: str) -> Batch:
    """A batch of ann, bob and ann that was made of a file, and is done; its lines are there."""
    archive = late.archive
    batch = await archive.batch("ann", "bob", "ann", kind="file", input_file_id=file_id)
    answered = b"".join(result(batch, number) for number in (1, 2, 3))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    return batch


async def notes(late: Late) -> int:
    query = select(func.count()).select_from(erasure_attempts)
    async with late.archive.database.reading() as connection:
        return int((await connection.execute(query)).scalar_one())


@pytest.mark.either
@pytest.mark.parametrize("step", STEPS)
async def test_who_is_killed_at_a_step_is_followed_and_no_number_is_lost(
    late: Late, step: str
) -> None:
    archive = late.archive
    lines = [line("ann", "n1"), line("bob", "n2"), line("ann", "n3")]
    file_id = await archive.file(b"".join(lines))
    batch = await over(late, file_id)
    await late.erased(file_id)
    tending = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{KILLED}{STEPS[step]}\n{TENDS}"),
        str(Path(archive.settings.source)),
    )
    assert await tending.wait() == -signal.SIGKILL
    archive.clock.advance(CLAIM_US / 1_000_000)
    await late.tended()
    assert await archive.numbers() == [(batch.batch_id, 2)]
    assert sorted(await archive.content()) == sorted([b"\n" + lines[1] + b"\n", result(batch, 2)])
    said = await late.said()
    assert said["kept"] == {"batches": 1, "lines": 2, "files": 2, "file_lines": 4}
    assert said["kept_arrived"] == [file_id]
    assert await notes(late) == 0


async def test_what_an_attempt_that_failed_has_destroyed_counts(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id = await late.archive.file(line("ann") + line("bob") + line("ann"))
    batch = await over(late, file_id)
    await late.erased(file_id)

    async def fails(*_: Any, **__: Any) -> int:
        raise NotReady("the database does not answer")

    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "_apply", fails)
        with pytest.raises(NotReady):
            await late.arrivals.tend()
    assert (await late.said())["kept"] == NONE
    late.archive.clock.advance(60)
    assert await late.tended() == 1
    said = await late.said()
    assert said["kept"] == {"batches": 1, "lines": 2, "files": 2, "file_lines": 4}
    assert await late.archive.numbers() == [(batch.batch_id, 2)]


async def test_who_was_overtaken_counts_nothing_twice(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk stood still for longer than a claim counts; another process came to the end."""
    archive = late.archive
    await late.erased(await archive.file(line("ann") + line("bob")))
    other = LateArrivals(archive.settings, archive.database, late.log, archive.clock)
    begun = list[str]()

    async def destroys(*given: Any) -> None:
        begun.append(given[-1])
        if len(begun) == 1:
            archive.clock.advance(CLAIM_US / 1_000_000)
            await other.tend()
        await usual(*given)

    usual = KeptContent.destroy
    monkeypatch.setattr(KeptContent, "destroy", destroys)
    with pytest.raises(NotReady, match="written anew"):
        await late.arrivals.tend()
    assert (await late.said())["kept"] == NONE | {"files": 1, "file_lines": 1}
    assert await archive.content() == [b"\n" + line("bob")]


async def test_a_batch_counts_once_of_which_more_lines_come_later(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = late.archive
    file_id = await archive.file(line("ann", "n1") + line("bob", "n2"))
    batch = await archive.batch("ann", "bob", kind="file", input_file_id=file_id)
    await archive.move(batch, state="in_progress")
    await late.erased(batch.batch_id)
    usual = KeptContent.destroy

    async def destroys(*given: Any) -> None:
        await usual(*given)
        key = await archive.batches.content_key(batch)
        assert key is not None
        await archive.move(batch, state="validating")
        await archive.lines.add(batch.batch_id, key, [more])
        await archive.move(batch, state="in_progress")

    more = Line(3, "n3", body("ann"))
    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "destroy", destroys)
        await late.arrivals.tend()
    assert "kept_arrived" not in await late.said()
    assert await notes(late) == 1
    assert await late.tended() == 1
    said = await late.said()
    assert said["kept"] == NONE | {"batches": 1, "lines": 2}
    assert await notes(late) == 0


@pytest.mark.parametrize("whose", ["ann", ""])
async def test_a_hold_that_is_set_while_everything_is_read_goes_before_it(
    late: Late, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    archive = late.archive
    await late.erased(await archive.file(line("ann") + line("bob")))
    custody, find = Custody(archive.database, late.log, archive.clock), KeptContent.find
    held = list[str]()

    async def finds(*given: Any, **more: Any) -> Holding:
        found = await find(*given, **more)
        if not held:
            subject = archive.subject(whose) if whose else ""
            held.append((await custody.set_hold("cora", "acme", subject, "a lawsuit")).id)
        return found

    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "find", finds)
        await late.arrivals.tend()
    assert await archive.content() == [line("ann") + line("bob")]
    assert "kept_arrived" not in await late.said()
    assert await late.tended() == 0, "nothing is begun, nor recorded, while it is held"
    for person in ("cora", "dan"):
        await custody.release_hold(person, held[0])
    assert await late.tended() == 1
    assert await archive.content() == [b"\n" + line("bob")]
    assert (await late.said())["kept"] == NONE | {"files": 1, "file_lines": 1}
