"""Reusable answers in this worker's memory, inside one project, as policy says.

An answer is found by everything that made it: who asked and where, the policy document, the
dialect, and every byte of the request. Nothing here is needed: all of it can be lost at any moment.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Final, Protocol

from msgspec import Struct

from gateway.admission.hosted_tools import may_run_tools_there
from gateway.caching.joining import Leads
from gateway.caching.likeness import Likenesses
from gateway.configuration.sections import ResponseCacheSettings
from gateway.passage import Passage
from gateway.projects import project_of
from gateway.rollout.versions import PolicySet
from gateway.routing.planning import Ruling
from gateway.types import (
    Candidate,
    ChatRequest,
    Completion,
    Delta,
    DialectName,
    Principal,
    StreamEvent,
    Target,
)
from policies.limits import CACHE_S_MAX
from policies.repeating import repeating


OVERHEAD_BYTES: Final = 2048
"""About the memory that an entry takes besides its texts."""
EVENT_BYTES: Final = 200
PIECE_BYTES: Final = 240
"""About the memory that an event of a stream, or a piece or call of an answer, takes besides its
texts."""
AGE_DIGITS_MAX: Final = 9
FOR_EVER_S: Final = 10**AGE_DIGITS_MAX
NEVER_S: Final = -1
CLOCKS_APART_US: Final = 60_000_000
"""How much the clocks of two workers may differ without an erased answer coming back."""


class KeptReply(Struct, frozen=True):
    """A target's reply to a request: a complete answer, or the events of a stream."""

    target: Target
    source: DialectName
    dropped: tuple[str, ...]
    request_id: str
    """The id of the request that the target itself answered."""
    kept_s: float
    completion: Completion | None = None
    events: tuple[StreamEvent, ...] = ()
    asked_us: int = 0
    """When the request came, by its worker's wall clock; 0 if that worker did not say."""
    keeps_s: int = CACHE_S_MAX
    """How long policy let it be reused when it was kept: after that it need not be kept."""

    @property
    def length_bytes(self) -> int:
        whole = _length_of_whole(self.completion) if self.completion is not None else 0
        return OVERHEAD_BYTES + whole + length_of(self.events)


def length_of(events: Iterable[StreamEvent]) -> int:
    """About the memory that the events of a stream take: their bytes, and the parsed deltas.

    A text with a single emoji takes four bytes for every character.
    """
    return sum(
        EVENT_BYTES + len(event.raw) + sum(map(_length_of_piece, event.deltas)) for event in events
    )


def _length_of_whole(completion: Completion) -> int:
    calls = completion.tool_calls
    length = len(completion.raw) + getsizeof(completion.text) + PIECE_BYTES * len(calls)
    length += sum(getsizeof(call.arguments_json) for call in calls)
    return length + sum(map(_length_of_piece, completion.thinking))


def _length_of_piece(delta: Delta) -> int:
    return PIECE_BYTES + getsizeof(delta.text) + len(delta.signature) + len(delta.redacted)


class AnswerPlace(Protocol):
    """A place where workers share answers, behind their own memories. Nobody waits for it."""

    async def find(self, organisation: str, key: bytes) -> KeptReply | None:
        """What is kept there, of any age; None also if the place does not answer in time."""
        ...

    def keep(self, organisation: str, key: bytes, reply: KeptReply, keeps_s: int) -> None:
        """Keep a reply for `keeps_s`; the caller does not wait for that."""
        ...

    async def close(self) -> None: ...


class CacheTotals(Struct, frozen=True):
    """How much is kept."""

    replies: int
    length_bytes: int


class ResponseCache:
    """A bounded store: the least recently used goes first, and no organisation can fill it.

    Belongs to one event loop.
    """

    def __init__(self, settings: ResponseCacheSettings, shared: AnswerPlace | None = None) -> None:
        self.shared = shared
        """The second level, if there is one; asked by callers that may wait, closed by `close`."""
        self._settings = settings
        self._replies: dict[str, OrderedDict[bytes, KeptReply]] = {}
        self._held_bytes: dict[str, int] = {}
        self._erased_us: Mapping[str, int] = {}
        self.likenesses = Likenesses(settings.vectors_max)
        # Nobody waits for what is kept in no case.
        self.leads = Leads(settings.wait_s if self.reply_bytes_max > OVERHEAD_BYTES else 0.0)
        """For all requests of this worker, including those of batches and without a caller."""

    @property
    def totals(self) -> CacheTotals:
        replies = sum(map(len, self._replies.values()))
        return CacheTotals(replies, sum(self._held_bytes.values()))

    @property
    def reply_bytes_max(self) -> int:
        """The longest reply that is kept."""
        settings = self._settings
        most = min(settings.organisation_bytes_max, settings.memory_bytes_max)
        return min(settings.reply_bytes_max, most)

    def find(self, organisation: str, key: bytes, oldest_s: float) -> KeptReply | None:
        """What was kept under a key, unless that was before `oldest_s` on the clock."""
        replies = self._replies.get(organisation)
        found = replies.get(key) if replies is not None else None
        if replies is None or found is None:
            return None
        if found.kept_s < oldest_s:
            return None
        replies.move_to_end(key)
        return found

    def keep(self, organisation: str, key: bytes, reply: KeptReply) -> bool:
        """Keep a reply in place of an older one; whether it was short enough, and may be kept."""
        is_erased = self.is_erased(organisation, reply.asked_us)
        if is_erased or reply.length_bytes > self.reply_bytes_max:
            return False
        self._forget(organisation, key)
        self._replies.setdefault(organisation, OrderedDict())[key] = reply
        self._held_bytes[organisation] = self._held_bytes.get(organisation, 0) + reply.length_bytes
        while self._held_bytes[organisation] > self._settings.organisation_bytes_max:
            self._forget_oldest(organisation)
        while sum(self._held_bytes.values()) > self._settings.memory_bytes_max:
            # Whoever holds most gives first: a newcomer cannot push a small tenant out.
            self._forget_oldest(max(self._held_bytes, key=self._held_bytes.__getitem__))
        return True

    def forget_old(self, now_s: float) -> int:
        """Drop what has been kept as long as it may be, and return how many that were.

        A question is dropped with its answer, also if that had to make room for others.
        """
        stale = [
            (organisation, key)
            for organisation, replies in self._replies.items()
            for key, reply in replies.items()
            if reply.kept_s + reply.keeps_s < now_s
        ]
        for organisation, key in stale:
            self._forget(organisation, key)
        self.likenesses.keep_only({key for replies in self._replies.values() for key in replies})
        return len(stale)

    def is_erased(self, organisation: str, asked_us: int, apart_us: int = 0) -> bool:
        """Whether all of an organisation's content was erased after `asked_us`.

        For requests to another worker that cannot be told within `apart_us`: they count as erased.
        """
        erased_us = self._erased_us.get(organisation)
        return erased_us is not None and asked_us <= erased_us + apart_us

    def forget_erased(self, erased_us: Mapping[str, int], anew: Collection[str]) -> None:
        """Set until when each organisation's answers are erased; drop all answers of those `anew`.

        An erasure is heard of a moment late, and what was kept until then may be older than it.
        """
        self._erased_us = erased_us
        if not anew:
            return
        for organisation in self._replies.keys() & set(anew):
            for key in list(self._replies[organisation]):
                self._forget(organisation, key)
        left = {key for replies in self._replies.values() for key in replies}
        self.likenesses.keep_only(left)

    async def close(self) -> None:
        """Close the shared place."""
        if self.shared is not None:
            await self.shared.close()

    def _forget_oldest(self, organisation: str) -> None:
        self._forget(organisation, next(iter(self._replies[organisation])))

    def _forget(self, organisation: str, key: bytes) -> None:
        replies = self._replies.get(organisation)
        reply = replies.pop(key, None) if replies is not None else None
        if reply is None:
            return
        self._held_bytes[organisation] -= reply.length_bytes
        if not replies:
            del self._replies[organisation], self._held_bytes[organisation]


class Leave(Struct, frozen=True):
    """How policy lets the answer to a request be reused."""

    keeps_s: int = 0
    """How long it may be reused; 0: not at all."""
    like_percent: float = 0.0
    """The similarity from which on it may answer another question; 0: none."""


NO_LEAVE: Final = Leave()


def leave_for(passage: Passage) -> Leave:
    """How policy lets the answer to this request be reused.

    An answer to a request that names an end user, or in which names were replaced, belongs to one
    person: it is never kept. Neither is one that continues something, which may name one as well,
    nor an answer that the log may not keep in full.
    """
    policies, thread = passage.arrival.snapshot.policies, passage.request.thread
    ruling = passage.ruling
    if not policies.keeps_answers or passage.subject or passage.rewriting is not None:
        return NO_LEAVE
    if thread is not None and thread.goes_on:
        return NO_LEAVE
    if ruling.plan.audit_content != "encrypted":
        return NO_LEAVE
    leave = granted(policies, passage.principal, ruling)
    return NO_LEAVE if leave.keeps_s and _depends_on_more(passage.request) else leave


def _depends_on_more(request: ChatRequest) -> bool:
    """Whether an answer depends on more than what was sent, or is the report of an action.

    Another picture may be at an address by now, and a search finds something else. A tool that its
    vendor runs may have done what the answer says; when the answer is reused, nobody has done it.
    """
    return bool(request.destinations) or may_run_tools_there(request)


def granted(policies: PolicySet, principal: Principal, ruling: Ruling) -> Leave:
    """What the rules say about keeping answers, whatever is in them."""
    if not policies.keeps_answers or ruling.decision.obligations.no_cache:
        return NO_LEAVE
    holds = repeating(policies.document_for(principal), ruling.facts, ruling.decision)
    return Leave(holds.cache_s, holds.cache_like_percent or 0.0) if holds.cache_s else NO_LEAVE


def start_of(passage: Passage) -> bytes:
    """All that an answer depends on besides the body: who asked, where, under which policy."""
    request, plan = passage.request, passage.ruling.plan
    parts = (
        *project_of(passage.principal),
        passage.ruling.decision.document_digest,
        passage.inspection.data_class,
        passage.arrival.endpoint,
        request.dialect,
        request.version,
        ",".join(request.betas),
        ",".join(request.dropped),
        plan.translation,
        str(plan.candidates[0].output_tokens_cap),
    )
    # Lengths keep neighbours apart: no part can pass for the end of the one before it.
    return b"".join(b"%d:%b" % (len(encoded := part.encode()), encoded) for part in parts)


def key_of(start: bytes, raw: bytes) -> bytes:
    """SHA-256 of all that an answer depends on, including the body's bytes."""
    return hashlib.sha256(start + raw).digest()


def candidate_for(passage: Passage, reply: KeptReply) -> Candidate | None:
    """The candidate that gave a reply, if today's plan would ask the same target; else None."""
    candidates = passage.ruling.plan.candidates
    return next((each for each in candidates if each.target == reply.target), None)


class Wishes(Struct, frozen=True):
    """What a caller asks of the cache."""

    age_s_max: int
    may_keep: bool


def wishes_of(headers: Sequence[tuple[bytes, bytes]]) -> Wishes:
    """What `cache-control` says (RFC 9111 §5.2.1); unknown and invalid directives are ignored."""
    given = b",".join(value for name, value in headers if name == b"cache-control")
    words = [word.strip().lower() for word in given.decode("latin-1").split(",")]
    ages = [word.removeprefix("max-age=") for word in words if word.startswith("max-age=")]
    limits = [int(age) for age in ages if age.isdecimal() and len(age) <= AGE_DIGITS_MAX]
    if "no-cache" in words or "no-store" in words:
        limits.append(NEVER_S)
    return Wishes(min(limits, default=FOR_EVER_S), "no-store" not in words)
