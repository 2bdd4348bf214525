"""Answers that a caller may continue: kept here, for its project, and never by an upstream.

A request that continues an answer gets the whole history put in front of it before anything looks
at it, so inspection, routing and the record see what the model will see. What a thread once held
makes it as sensitive as that for ever.
"""

import secrets
from collections.abc import Callable

import msgspec
from msgspec import structs

from gateway.clock import Clock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.errors import BodyTooLarge, PreviousResponseUnknown, ResponseUnknown, Unavailable
from gateway.passage import Arrival, Passage
from gateway.ports import AnswerStore, KeptAnswer
from gateway.telemetry import Event, logger
from gateway.types import ChatRequest, Inspection, Principal, Thread


ID_BYTES = 24
"""192 bits: nobody guesses an id, and who learns one still needs a key of its project."""

US_PER_DAY = 86_400_000_000

Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_ITEMS = msgspec.json.Decoder(list[Fields])
_OF_OUTPUT_ONLY = ("id", "status", "logprobs")


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
        self._clock = clock
        self._keep_us = settings.keep_days * US_PER_DAY
        self._body_bytes_max = limits.body_bytes_max
        self._random_hex = random_hex
        self._log = logger()

    async def resume(
        self, arrival: Arrival, principal: Principal, request: ChatRequest
    ) -> ChatRequest:
        """The request with all that was said before, and the name its answer will have.

        Raises:
            PreviousResponseUnknown: this project has no such answer, or has it no more.
            BodyTooLarge: with its history it is longer than any request may be.
        """
        asked = request.thread or Thread()
        keeps = asked.keeps and self._keep_us > 0
        answer_id = f"resp_{self._random_hex(ID_BYTES)}" if keeps else ""
        data_class = "S0"
        if asked.previous_id:
            kept = await self._store.find(
                project_of(principal), asked.previous_id, self._clock.utc_us()
            )
            if kept is None:
                raise PreviousResponseUnknown(
                    "There is no such previous response.", parameter="previous_response_id"
                )
            raw = _with_history(request.raw, kept)
            if len(raw) > self._body_bytes_max:
                raise BodyTooLarge("The request is too long together with its history.")
            request = arrival.dialect.decode_request(raw, request.request_id, arrival.headers)
            data_class = kept.data_class
        thread = Thread(asked.previous_id, keeps, answer_id, data_class)
        return structs.replace(request, thread=thread)

    async def keep(self, passage: Passage, response: bytes) -> None:
        """Keep an answer. Its caller has it in any case: a store that fails is written down."""
        request, principal = passage.request, passage.principal
        thread = request.thread
        if thread is None or not thread.keeps or not response:
            return
        now_us = self._clock.utc_us()
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
            await self._store.keep(answer)
        except Unavailable as error:
            self._log.warning(
                Event.RESPONSE_NOT_KEPT, request_id=request.request_id, code=error.code
            )

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

    async def forget_expired(self) -> None:
        await self._store.forget_expired(self._clock.utc_us())


def project_of(principal: Principal) -> tuple[str, str, str]:
    return principal.organisation, principal.workspace, principal.project


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
    """What was answered, as the next request says it: without names that nobody holds.

    Reasoning is left out unless it is sealed: an upstream that holds nothing needs it whole.
    """
    items = []
    for item in _ITEMS.decode(output):
        is_reasoning = bytes(item.get("type", b"")) == b'"reasoning"'
        if is_reasoning and bytes(item.get("encrypted_content", b"null")) == b"null":
            continue
        for name in _OF_OUTPUT_ONLY:
            if not (is_reasoning and name == "id"):
                item.pop(name, None)
        items.append(msgspec.Raw(msgspec.json.encode(item)))
    return items


class MemoryAnswers:
    """An `AnswerStore` that lives in memory: for tests and dry runs, a restart forgets it."""

    def __init__(self) -> None:
        self._answers: dict[tuple[tuple[str, str, str], str], KeptAnswer] = {}

    async def keep(self, answer: KeptAnswer) -> None:
        self._answers[answer.project, answer.answer_id] = answer

    async def find(
        self, project: tuple[str, str, str], answer_id: str, now_us: int
    ) -> KeptAnswer | None:
        found = self._answers.get((project, answer_id))
        return found if found is not None and found.expires_us > now_us else None

    async def forget(self, project: tuple[str, str, str], answer_id: str) -> bool:
        return self._answers.pop((project, answer_id), None) is not None

    async def forget_expired(self, now_us: int) -> int:
        expired = [key for key, kept in self._answers.items() if kept.expires_us <= now_us]
        for key in expired:
            del self._answers[key]
        return len(expired)
