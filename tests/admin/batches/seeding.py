"""Batches and files for pages to show, as a worker leaves them."""

from msgspec import structs

from gateway.batches import Batch, Line, LineCounts
from gateway.projects import Project
from gateway.secrets.credentials import master_key
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.batching.lines import LineStore
from gateway.store.engine import Database
from tests.admin.listener import Listener


PLACE = Project("acme", "research", "assistant")
DAY_US = 86_400_000_000


async def batch(
    listener: Listener,
    database: Database,
    key_id: str,
    lines: int = 3,
    *,
    place: Project = PLACE,
) -> str:
    """A batch of which nothing was sent yet; its id."""
    now_us, master = listener.clock.utc_us(), master_key(listener.settings)
    store = BatchStore(database, master, listener.clock)
    made = await store.make(
        Batch(
            *("batch_", "messages", place, key_id, "/v1/messages", "validating"),
            created_us=now_us,
            expires_us=now_us + DAY_US,
            keep_until_us=now_us + 30 * DAY_US,
        )
    )
    key = await store.content_key(made)
    assert key is not None
    many = [Line(number, f"n{number}", b'{"secret":"words"}') for number in range(1, lines + 1)]
    await LineStore(database, listener.clock).add(made.batch_id, key, many)
    await store.begin(made.batch_id, 1)
    return made.batch_id


async def end(listener: Listener, database: Database, batch_id: str, counts: LineCounts) -> None:
    """The batch, over."""
    store = BatchStore(database, master_key(listener.settings), listener.clock)
    await store.wind_up(batch_id, "completed")
    led = await store.led(batch_id)
    assert led is not None
    await store.end(structs.replace(led, ending="completed"), counts, keeps_lines=True)


async def file(
    listener: Listener,
    database: Database,
    key_id: str,
    *,
    place: Project = PLACE,
) -> str:
    """A file of lines; its id."""
    files = FileStore(database, master_key(listener.settings), listener.clock)
    writer = await files.begin(place, key_id, "batch")
    await writer.write(b"secret words\n" * 200)
    until_us = listener.clock.utc_us() + 7 * DAY_US
    return (await writer.finish("secret-name.jsonl", until_us)).file_id
