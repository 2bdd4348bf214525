"""Collects what one pass over the content beside the log has found of a person. Pure."""

from collections.abc import Sequence

from sqlalchemy import RowMapping

from gateway.batches import Batch, KeptFile
from gateway.projects import Project
from gateway.store.batching.kept_names import Whose
from gateway.store.schema.owned import owner_of


class Search:
    """Collects which lines, files and answers belong to an end user."""

    def __init__(self, whose: Whose, bytes_max: int | None) -> None:
        self.whose = whose
        self.theirs: dict[str, set[int]] = {}
        """Lines that name the end user in question, by batch or file."""
        self.others: dict[str, set[int]] = {}
        """Lines that name somebody else, likewise."""
        self._called: dict[str, set[str]] = {}
        """The custom ids of the end user's lines, by file, and by batch made of one."""
        self._blanks: dict[str, set[int]] = {}
        """Empty places in files: perhaps lines that were erased."""
        self._files: dict[str, str] = {}
        """The file each batch was made of."""
        self.damaged: set[str] = set()
        """Files that could not be read to their end, and never can be."""
        self.in_vain: set[str] = set()
        """Files that were rewritten or deleted while they were read."""
        self.kept: dict[str, int] = {}
        self.told: set[str] = set()
        """Batches whose lines' end users are known."""
        self.answers: dict[str, Project] = {}
        self.conversations = 0
        """How many answers are conversations."""
        self.running = self.unnamed_lines = self.unnamed_files = self.unnamed_answers = 0
        self.last_expiry_us = 0
        self.is_whole = True
        self.opened = self.closed = 0
        """How many things have a key that this master key opens, and does not open."""
        self._left_bytes = bytes_max

    @property
    def reads_all(self) -> bool:
        """Whether it reads everything, however much there is."""
        return self._left_bytes is None

    def takes(self, length_bytes: int) -> bool:
        """Whether this much may still be read; if not, the search is incomplete."""
        if self._left_bytes is not None and self._left_bytes <= 0:
            self.is_whole = False
            return False
        if self._left_bytes is not None:
            self._left_bytes -= length_bytes
        return True

    def close(self, *, is_key: bool) -> None:
        """Note something that does not open, or whose key does not: its end user cannot be told."""
        self.closed += is_key
        self.opened += not is_key
        self.is_whole = False

    def saw(self, thing: str, number: int, *, is_theirs: bool, called: str = "") -> None:
        """Note a line; `called` is the custom id of a line of a file."""
        known = self.theirs if is_theirs else self.others
        known.setdefault(thing, set()).add(number)
        if is_theirs and called:
            self._called.setdefault(thing, set()).add(called)

    def saw_nothing(self, file_id: str, number: int) -> None:
        """Note an empty line of a file of which batches are made."""
        self._blanks.setdefault(file_id, set()).add(number)

    def forget(self, file_id: str) -> None:
        """Forget what was seen of a file that has changed: its lines may have moved."""
        self.in_vain.add(file_id)
        for known in (self.theirs, self.others, self._called, self._blanks):
            known.pop(file_id, None)

    def is_untold(self, batch_id: str, line: int) -> bool:
        """Whether neither a batch nor its file can tell whose a line was.

        It was taken out of the file, or the batch is forgotten: its results may outlive both.
        """
        if batch_id not in self._files:
            return True
        return line in self._blanks.get(self._files[batch_id], ())

    def inherit(self, batch_id: str, file_id: str) -> None:
        """Apply what is known of a file's lines to the lines made of it.

        Unless these themselves name somebody else: if an earlier version took lines out of a file,
        the others have moved.
        """
        self._files[batch_id] = file_id
        if file_id in self._called and file_id not in self.damaged:
            self._called[batch_id] = self._called[file_id]
        known = self.theirs.get(batch_id, set[int]()), self.others.get(batch_id, set[int]())
        for mine, by_themselves in ((self.theirs, known[1]), (self.others, known[0])):
            if left := mine.get(file_id, set[int]()) - by_themselves:
                mine.setdefault(batch_id, set()).update(left)

    def is_result_theirs(self, batch_id: str, line: int, called: str) -> bool:
        """Whether a result answers one of their lines: by its custom id, if that is known.

        No two lines of a batch have the same custom id.
        """
        if called and batch_id in self._called:
            return called in self._called[batch_id]
        return line in self.theirs.get(batch_id, ())

    def follow(self, answers: Sequence[RowMapping]) -> None:
        """Include what continues an answer of theirs, whichever is older by the clock."""
        continuing: dict[str, list[RowMapping]] = {}
        for each in answers:
            continuing.setdefault(each["previous_id"], []).append(each)
        left = [*self.answers]
        while left:
            for each in continuing.pop(left.pop(), ()):
                self.answers[each["id"]] = owner_of(each)
                left.append(each["id"])

    def line(self, batch: Batch, number: int, state: str, named: str) -> None:
        """Note one line that is kept with its batch."""
        if not named:
            self.unnamed_lines += 1
            self.last_expiry_us = max(self.last_expiry_us, batch.keep_until_us)
            return
        is_theirs = self.whose.is_named(named)
        self.saw(batch.batch_id, number, is_theirs=is_theirs)
        if is_theirs:
            self.kept[batch.batch_id] = self.kept.get(batch.batch_id, 0) + 1
            self.running += state == "running"

    def leave(self, file: KeptFile, unnamed: int) -> None:
        """Note lines of a file that nobody can attribute."""
        self.unnamed_lines += unnamed
        self.unnamed_files += bool(unnamed)
        if unnamed:
            self.last_expiry_us = max(self.last_expiry_us, file.expires_us)
