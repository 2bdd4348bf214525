"""One-time work for a batch: turns its file into lines, and its lines into result files.

Either may be interrupted anywhere and is then done again from its beginning: what an earlier
attempt left is cleared away first.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial, reduce

from msgspec import structs

from gateway.batches import (
    FLAWS_MAX,
    AnswerSums,
    Batch,
    EndedLine,
    Flaw,
    KeptFile,
    Line,
    LineCounts,
    LineState,
)
from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import Limits
from gateway.dialects.resources.openai_batch_sums import with_answer
from gateway.dialects.resources.openai_batches import BYTE_ORDER_MARK, read_lines, result_line
from gateway.secrets.content_keys import ContentDamaged, ContentKey, KeyClosed
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore, FileWriter
from gateway.store.batching.leads import FINISHED, Check, leading
from gateway.store.batching.lines import LineStore


GROUP_BYTES = 256 * 1024
"""How much is read at once: a few milliseconds of work, in a thread."""
GROUP_LINES = 500
CUT_AT_ONCE = 2_000
"""Lines, perhaps most of them empty, before others have a turn of the loop."""
EMPTY_LINES = 2
"""The most lines, as a multiple of a batch's: some write an empty line after each one.

A file may also have sixty million, which took half a minute of the loop for each batch of it.
"""
GIVEN_UP_AS: dict[str, LineState] = {
    "completed": "errored",
    "expired": "expired",
    "cancelled": "canceled",
}
"""The state of a line that was not sent, by how its batch ended."""

RawLine = tuple[int, bytes]


class BatchChores:
    """Takes in batches, and finishes them."""

    def __init__(
        self,
        batches: BatchStore,
        lines: LineStore,
        files: FileStore,
        clock: Clock,
        limits: Limits,
        keep_us: int,
    ) -> None:
        self._batches = batches
        self._lines = lines
        self._files = files
        self._clock = clock
        self._limits = limits
        self._keep_us = keep_us

    async def check(self, batch: Batch, holder: str) -> None:
        """Make lines from a batch's file, or report everything that is wrong with it.

        Raises:
            LeadOver: `holder` does not lead the batch any more, or somebody cancelled it.
        """
        key = await self._batches.content_key(batch)
        file = await self._files.find(batch.project, batch.input_file_id)
        await self._lines.clear(batch.batch_id, holder)
        if batch.is_damaged:
            await self._batches.fail(batch, [], holder)  # Its damage is reported separately.
            return
        if key is None or file is None:
            gone = Flaw("file_not_found", "The input file was deleted.", None, "input_file_id")
            await self._batches.fail(batch, [gone], holder)
            return
        try:
            flaws = await self._take_in(batch, key, file, holder)
        except (ContentDamaged, KeyClosed):  # This master key has just opened the batch's own key.
            flaws = [Flaw("file_damaged", "The input file was damaged.", None, "input_file_id")]
        if flaws:
            told = sorted(flaws, key=lambda flaw: flaw.line or 0)[:FLAWS_MAX]
            await self._batches.fail(batch, told, holder)
        else:
            await self._batches.begin(batch.batch_id, file.size_bytes, holder=holder)

    async def _take_in(
        self, batch: Batch, key: ContentKey, file: KeptFile, holder: str
    ) -> list[Flaw]:
        """What is wrong with its file; if nothing is, all its lines are stored."""
        flaws: list[Flaw] = []
        seen: set[bytes] = set()
        async for group in _groups(self._raw_lines(self._files.content(file), flaws)):
            read = await asyncio.to_thread(partial(read_lines, group, batch.endpoint))
            lines = _told_apart(read, seen, flaws)
            if len(flaws) >= FLAWS_MAX:
                break
            if not flaws:
                await self._lines.add(batch.batch_id, key, lines, holder)
        if not seen and not flaws:
            flaws.append(Flaw("empty_file", "The file holds no line.", None, "input_file_id"))
        return flaws

    async def finish(self, batch: Batch, holder: str) -> None:
        """End lines that were not sent, and publish the results; raises LeadOver."""
        key = await self._batches.content_key(batch)
        if key is None:
            return
        await self._lines.give_up(batch.batch_id, GIVEN_UP_AS[batch.ending])
        keeps_lines = batch.kind == "messages"
        if keeps_lines:
            counts = await self._lines.counts(batch.batch_id)
        else:
            batch, counts = await self._with_files(batch, key, holder)
        await self._batches.end(batch, counts, keeps_lines=keeps_lines, holder=holder, key=key)

    async def _raw_lines(
        self, pieces: AsyncIterator[bytes], flaws: list[Flaw]
    ) -> AsyncIterator[RawLine]:
        """Lines with their numbers; a line that is too long becomes a flaw."""
        limits, number, count = self._limits, 0, 0
        async for number, raw in split_lines(pieces, limits.batch_line_bytes_max):
            if number > EMPTY_LINES * limits.batch_lines_max:
                most = EMPTY_LINES * limits.batch_lines_max
                reason = f"The file has more than {most} lines, with those that are empty."
                flaws.append(Flaw("too_many_lines", reason, number))
                return
            if raw is None:
                reason = f"The line is longer than {limits.batch_line_bytes_max} bytes."
                flaws.append(Flaw("line_too_long", reason, number))
                continue
            if _is_blank(number, raw):
                continue
            count += 1
            if count > limits.batch_lines_max:
                reason = f"The file has more than {limits.batch_lines_max} lines."
                flaws.append(Flaw("too_many_lines", reason, number))
                return
            yield number, raw

    async def _with_files(
        self, batch: Batch, key: ContentKey, holder: str
    ) -> tuple[Batch, LineCounts]:
        """Count, and write results into files, named first so that they are written only once."""
        if not batch.output_file_id:
            names = (self._files.new_id(), self._files.new_id())
            await self._batches.name_files(batch.batch_id, *names, holder)
            batch = structs.replace(batch, output_file_id=names[0], error_file_id=names[1])
        check = leading(batch.batch_id, holder, FINISHED)
        output = await self._begin(batch, batch.output_file_id, check)
        errors = await self._begin(batch, batch.error_file_id, check)
        counted, sums = Counter[str](), AnswerSums()
        add = partial(with_answer, batch.endpoint)
        async for group in self._lines.ended(batch, key):
            counted.update(line.state for line in group)
            sums = reduce(add, _answers(group), sums)
            for writer, is_output in ((output, True), (errors, False)):
                if text := _rendered(batch, group, is_output=is_output):
                    await writer.write(text)
        batch = structs.replace(
            batch,
            told=structs.replace(batch.told, sums=sums),
            output_file_id=await self._end(batch, output, "output"),
            error_file_id=await self._end(batch, errors, "error"),
        )
        return batch, LineCounts(**counted)

    async def _begin(self, batch: Batch, file_id: str, check: Check) -> FileWriter:
        return await self._files.begin(batch.project, batch.key_id, "batch_output", file_id, check)

    async def _end(self, batch: Batch, writer: FileWriter, what: str) -> str:
        """The file's id; empty if nothing was to be written."""
        if not writer.size_bytes:
            await writer.discard()
            return ""
        keep_us = min(self._keep_us, batch.told.output_keep_s * SECOND_US or self._keep_us)
        expires_us = self._clock.utc_us() + keep_us
        return (await writer.finish(f"{batch.batch_id}_{what}.jsonl", expires_us)).file_id


def _is_blank(number: int, raw: bytes) -> bool:
    """Whether a line is empty; the first one may begin with a byte order mark."""
    return not (raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw).strip()


async def split_lines(
    pieces: AsyncIterator[bytes], length_max: int
) -> AsyncIterator[tuple[int, bytes | None]]:
    """Lines without their ends, numbered from 1; None for one that is too long."""
    number, rest, is_too_long = 1, b"", False
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield number, None if is_too_long or len(line) > length_max else line
            number, is_too_long = number + 1, False
            if not number % CUT_AT_ONCE:
                await asyncio.sleep(0)
        if len(rest) > length_max:
            rest, is_too_long = b"", True
    if rest or is_too_long:
        yield number, None if is_too_long else rest


async def _groups(lines: AsyncIterator[RawLine]) -> AsyncIterator[list[RawLine]]:
    """Groups of lines, as many as are worth a thread's turn."""
    group: list[RawLine] = []
    length = 0
    async for number, raw in lines:
        group.append((number, raw))
        length += len(raw)
        if length >= GROUP_BYTES or len(group) >= GROUP_LINES:
            yield group
            group, length = [], 0
    if group:
        yield group


def _told_apart(read: Sequence[Line | Flaw], seen: set[bytes], flaws: list[Flaw]) -> list[Line]:
    """The distinct lines of what was read; faulty and repeated ones go to the flaws."""
    lines = []
    for each in read:
        if isinstance(each, Flaw):
            flaws.append(each)
            continue
        digest = hashlib.blake2b(each.custom_id.encode(), digest_size=16).digest()
        if digest in seen:
            reason = "Another line has this custom_id already."
            flaws.append(Flaw("duplicate_custom_id", reason, each.number, "custom_id"))
        seen.add(digest)
        lines.append(each)
    return lines


def _answers(group: list[EndedLine]) -> list[bytes]:
    return [each.end.body for each in group if each.state == "succeeded" and each.end is not None]


def _rendered(batch: Batch, group: list[EndedLine], *, is_output: bool) -> bytes:
    return b"".join(
        result_line(batch, line) for line in group if (line.state == "succeeded") == is_output
    )
