"""Answers that a caller may continue: kept here, for its project, and never by an upstream.

A request that continues an answer gets the whole history put in front of it before anything looks
at it, so inspection, routing and the record see what the model will see. What a thread once held
makes it as sensitive as that for ever.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec import structs

from gateway.admission.bounds import check_values
from gateway.clock import DAY_US, Clock, UnhurriedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing.kept_answers import AnswerStore, KeptAnswer
from gateway.errors import (
    BodyTooLarge,
    FeatureUnsupported,
    PreviousResponseUnknown,
    ResponseUnknown,
    Unavailable,
)
from gateway.passage import Arrival, Passage
from gateway.projects import Project, project_of
from gateway.telemetry import Event, logger
from gateway.types import ChatRequest, Inspection, Principal, Thread


ID_BYTES = 24
"""192 bits: nobody guesses an id, and who learns one still needs a key of its project."""


REFERENCES_MAX = 500
"""Each may lie in an answer of its own, which is opened with its whole history."""

ITEMS_NAMED_MAX = 256
"""Of one answer; what a broken upstream lists beyond that is kept and cannot be named."""

LOOKS = 16
"""How often it is looked, at least, while a project keeps as much as it may."""

Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_ITEMS = msgspec.json.Decoder(list[Fields])
_OF_OUTPUT_ONLY = ("id", "status", "logprobs")
_REFERENCE = msgspec.Raw(b'"item_reference"')
_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""What can be an item's id; the index holds nothing else that an upstream may have written."""


class Threads:
    """Continues and keeps answers; holds the store."""

    def __init__(
        self,
        store: AnswerStore,
        clock: Clock,
        settings: ResponsesSettings,
        limits: Limits,
        random_hex: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._store = store
        self._clock, self._unhurried = clock, UnhurriedClock(clock)
        self._keep_us = settings.keep_days * DAY_US
        self._body_bytes_max = limits.body_bytes_max
        self._values_max = limits.keys_max
        self._project_bytes_max = settings.project_bytes_max
        self._kept_bytes: Counter[Project] = Counter()
        """Of each project what this worker kept since it looked whether that is too much."""
        self.wake = asyncio.Event()
        self._random_hex = random_hex
        self._log = logger()

    async def resume(
        self, arrival: Arrival, principal: Principal, request: ChatRequest
    ) -> ChatRequest:
        """The request with all that was said before, and the name its answer will have.

        Raises:
            PreviousResponseUnknown: this project has no such answer, or has it no more.
            BodyTooLarge, RequestInvalid: with its history it is more than any request may be.
        """
        asked = request.thread or Thread()
        raw, data_class = request.raw, "S0"
        keeps = asked.keeps and self._keep_us > 0
        answer_id = f"resp_{self._random_hex(ID_BYTES)}" if keeps else ""
        if asked.references:
            raw, data_class = await self._spelled_out(project_of(principal), request)
        if asked.previous_id:
            kept = await self._store.find(
                project_of(principal), asked.previous_id, self._clock.utc_us()
            )
            if kept is None:
                raise PreviousResponseUnknown(
                    "There is no such previous response.", parameter="previous_response_id"
                )
            raw, data_class = _with_history(raw, kept), max(data_class, kept.data_class)
        if raw is not request.raw:
            if len(raw) > self._body_bytes_max:
                raise BodyTooLarge("The request is too long together with its history.")
            check_values(raw, self._values_max)
            request = arrival.dialect.decode_request(raw, request.request_id, arrival.headers)
        thread = Thread(asked.previous_id, keeps, answer_id, data_class, asked.references)
        return structs.replace(request, thread=thread)

    async def _spelled_out(self, project: Project, request: ChatRequest) -> tuple[bytes, str]:
        """A body with the items themselves where they were named, and their answers' class.

        Raises:
            FeatureUnsupported: this project has no such item, or has it no more.
        """
        assert request.thread is not None
        wanted = frozenset(request.thread.references)
        if len(wanted) > REFERENCES_MAX:
            raise _refused("input", f"At most {REFERENCES_MAX} items can be named")
        now_us = self._clock.utc_us()
        data_class = "S0"
        found: dict[str, Fields | None] = {}
        for answer_id in await self._store.holding(project, wanted, now_us):
            kept = await self._store.find(project, answer_id, now_us)
            if kept is None:
                continue
            data_class = max(data_class, kept.data_class)
            for name, item in _named_items(kept.response):
                # Where an upstream gave one name to two items, nobody knows which is meant.
                found[name] = item if found.get(name, item) == item else None
        return _with_items(request.raw, found), data_class

    async def keep(self, passage: Passage, response: bytes) -> None:
        """Keep an answer. Its caller has it in any case: a store that fails is written down."""
        request, principal = passage.request, passage.principal
        thread = request.thread
        if thread is None or not thread.keeps or not response:
            return
        now_us = self._clock.utc_us()
        items = [name for name, _ in _named_items(response)]
        answer = KeptAnswer(
            answer_id=thread.answer_id,
            project=project_of(principal),
            key_id=principal.key_id,
            previous_id=thread.previous_id,
            data_class=passage.inspection.data_class,
            created_us=now_us,
            expires_us=now_us + self._keep_us,
            input_items=msgspec.json.encode(_input_items(_FIELDS.decode(request.raw))),
            response=response,
        )
        try:
            await self._store.keep(answer, items)
        except Unavailable as error:
            self._log.warning(
                Event.RESPONSE_NOT_KEPT, request_id=request.request_id, code=error.code
            )
            return
        self._kept_bytes[answer.project] += answer.length_bytes
        if self._kept_bytes[answer.project] >= self._project_bytes_max // LOOKS:
            self.wake.set()

    async def find(self, principal: Principal, answer_id: str) -> KeptAnswer:
        """An answer of this principal's project.

        Raises:
            ResponseUnknown
        """
        kept = await self._store.find(project_of(principal), answer_id, self._clock.utc_us())
        if kept is None:
            raise ResponseUnknown("There is no such response.")
        return kept

    async def forget(self, principal: Principal, answer_id: str) -> None:
        """Raises ResponseUnknown where there was none."""
        if not await self._store.forget(project_of(principal), answer_id):
            raise ResponseUnknown("There is no such response.")

    async def tidy(self) -> None:
        """Forget what has expired, and what is more than a project may keep; raises NotReady."""
        await self._store.forget_expired(self._unhurried.utc_us())
        for project in [*self._kept_bytes]:
            seen = self._kept_bytes[project]
            count = await self._store.forget_beyond(project, self._project_bytes_max)
            self._kept_bytes[project] -= seen
            if count:
                self._log.warning(
                    Event.RESPONSES_LET_GO,
                    organisation=project.organisation,
                    workspace=project.workspace,
                    project=project.name,
                    count=count,
                )
        self._kept_bytes = +self._kept_bytes


def at_least(inspection: Inspection, request: ChatRequest) -> Inspection:
    """An inspection whose class is not below what the request's thread once had."""
    thread = request.thread
    if thread is None or thread.data_class <= inspection.data_class:
        return inspection
    return structs.replace(inspection, data_class=thread.data_class)


def without_keeping(request: ChatRequest) -> ChatRequest:
    """The same request, where policy permits no content to be kept."""
    if request.thread is None or not request.thread.keeps:
        return request
    return structs.replace(request, thread=structs.replace(request.thread, keeps=False))


def _with_history(raw: bytes, kept: KeptAnswer) -> bytes:
    fields = _FIELDS.decode(raw)
    said = _FIELDS.decode(kept.response).get("output", msgspec.Raw(b"[]"))
    items = [*_LIST.decode(kept.input_items), *_as_input(bytes(said)), *_input_items(fields)]
    fields["input"] = msgspec.Raw(msgspec.json.encode(items))
    return msgspec.json.encode(fields)


def _input_items(fields: Fields) -> list[msgspec.Raw]:
    """The input as items; a plain text is the user's. A count may have none."""
    given = bytes(fields.get("input", b"null"))
    if given == b"null":
        return []
    if given.startswith(b"["):
        return _LIST.decode(given)
    item = {"type": "message", "role": "user", "content": _TEXT.decode(given)}
    return [msgspec.Raw(msgspec.json.encode(item))]


def _as_input(output: bytes) -> list[msgspec.Raw]:
    """What was answered, as the next request says it."""
    return [item for fields in _ITEMS.decode(output) for item in _said_again(fields)]


def _said_again(item: Fields) -> list[msgspec.Raw]:
    """An item of an answer as input, without names that nobody holds.

    Reasoning is left out unless it is sealed: an upstream that holds nothing needs it whole.
    """
    is_reasoning = bytes(item.get("type", b"")) == b'"reasoning"'
    if is_reasoning and bytes(item.get("encrypted_content", b"null")) == b"null":
        return []
    for name in _OF_OUTPUT_ONLY:
        if not (is_reasoning and name == "id"):
            item.pop(name, None)
    return [msgspec.Raw(msgspec.json.encode(item))]


def _named_items(response: bytes) -> list[tuple[str, Fields]]:
    """The items of an answer that have an id, by it."""
    output = bytes(_FIELDS.decode(response).get("output", b"[]"))
    named = []
    for item in _ITEMS.decode(output)[:ITEMS_NAMED_MAX]:
        name = msgspec.json.decode(item.get("id", b"null"))
        if isinstance(name, str) and _NAME.fullmatch(name):
            named.append((name, item))
    return named


def _with_items(raw: bytes, found: Mapping[str, Fields | None]) -> bytes:
    """A body with items in the place of their names."""
    fields = _FIELDS.decode(raw)
    items: list[msgspec.Raw] = []
    for index, given in enumerate(_LIST.decode(fields["input"])):
        item = _FIELDS.decode(given)
        if item.get("type") != _REFERENCE:
            items.append(given)
            continue
        meant = found.get(_TEXT.decode(item["id"]))
        if meant is None:
            reason = "No such item is kept for this project; send the item itself"
            raise _refused(f"input[{index}]", reason)
        items += _said_again({**meant})
    fields["input"] = msgspec.Raw(msgspec.json.encode(items))
    return msgspec.json.encode(fields)


def _refused(place: str, reason: str) -> FeatureUnsupported:
    return FeatureUnsupported(f"{place}: {reason} (rule 56).", parameter=place)


class MemoryAnswers:
    """An `AnswerStore` that lives in memory: for tests and dry runs, a restart forgets it."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Project, str], KeptAnswer] = {}
        self._items: dict[tuple[Project, str], frozenset[str]] = {}

    async def keep(self, answer: KeptAnswer, items: Collection[str] = ()) -> None:
        self._answers[answer.project, answer.answer_id] = answer
        self._items[answer.project, answer.answer_id] = frozenset(items)

    async def find(self, project: Project, answer_id: str, now_us: int) -> KeptAnswer | None:
        found = self._answers.get((project, answer_id))
        return found if found is not None and found.expires_us > now_us else None

    async def holding(self, project: Project, items: Collection[str], now_us: int) -> Sequence[str]:
        return [
            kept.answer_id
            for key, kept in self._answers.items()
            if key[0] == project and kept.expires_us > now_us and self._items[key] & set(items)
        ]

    async def forget(self, project: Project, answer_id: str) -> bool:
        return self._answers.pop((project, answer_id), None) is not None

    async def forget_expired(self, now_us: int) -> int:
        expired = [key for key, kept in self._answers.items() if kept.expires_us <= now_us]
        for key in expired:
            del self._answers[key]
        return len(expired)

    async def forget_beyond(self, project: Project, length_bytes_max: int) -> int:
        its = [each for key, each in self._answers.items() if key[0] == project]
        over, length_bytes = [], 0
        for each in sorted(its, key=lambda each: each.created_us, reverse=True):
            length_bytes += each.length_bytes
            if length_bytes > length_bytes_max:
                over.append(each)
        for each in over:
            del self._answers[project, each.answer_id]
        return len(over)
