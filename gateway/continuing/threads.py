"""Answers that a caller may continue: kept here, for its project, and never by an upstream.

A request that continues an answer gets the whole history put in front of it before anything looks
at it, so inspection, routing and the record see what the model will see. A thread stays for ever as
sensitive as the most sensitive thing that it once held.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import structs

from gateway.admission.bounds import check_values
from gateway.clock import DAY_US, SECOND_US, Clock, UnhurriedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing.conversing import Conversations, Turn, said
from gateway.continuing.finished import Finished, Keeping
from gateway.continuing.items import (
    FIELDS,
    LIST,
    Fields,
    as_input,
    as_stream,
    input_items,
    is_unfinished,
    named_items,
    output_items,
    refused,
    with_before,
    with_items,
)
from gateway.continuing.kept_answers import AnswerStore, KeptAnswer
from gateway.errors import (
    BodyTooLarge,
    PreviousResponseUnknown,
    RequestInvalid,
    ResponseUnknown,
)
from gateway.money.budgets import end_user_reference
from gateway.pacing.pings import Direct, Write
from gateway.passage import Arrival, Passage
from gateway.projects import Project, project_of
from gateway.telemetry import Event, logger
from gateway.thread import Thread
from gateway.types import ChatRequest, Inspection, Principal


ID_BYTES = 24
"""192 bits: nobody can guess an id, and using one still takes a key of its project."""
_ID = re.compile(rf"resp_[0-9a-f]{{{2 * ID_BYTES}}}")


REFERENCES_MAX = 500
"""Each may be in an answer of its own, which is decrypted with its whole history."""

LOOKS = 16
"""How often its size is checked, at least, while a project keeps as much as it may."""


Relay = Callable[[Write, Direct], Awaitable[bool]]


class Threads:
    """Continues and keeps answers; holds the store."""

    def __init__(
        self,
        store: AnswerStore,
        clock: Clock,
        settings: ResponsesSettings,
        limits: Limits,
        conversations: Conversations,
        random_hex: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._store = store
        self._clock, self._unhurried = clock, UnhurriedClock(clock)
        self._keep_us = settings.keep_days * DAY_US
        self._makes_later = settings.background_running_max > 0
        self._body_bytes_max = limits.body_bytes_max
        self._values_max = limits.keys_max
        self._project_bytes_max = settings.project_bytes_max
        self._kept_bytes: Counter[Project] = Counter()
        """For each project, the bytes that this worker kept since it last checked its size."""
        self.wake = asyncio.Event()
        self.conversations = conversations
        conversations.kept = self.note_kept
        self._random_hex = random_hex
        self.keeping = Keeping(store, conversations, clock)
        self.keeping.kept = self.note_kept
        self._log = logger()

    async def resume(
        self, arrival: Arrival, principal: Principal, request: ChatRequest
    ) -> ChatRequest:
        """The request with all that was said before, and the id that its answer will have.

        Raises:
            PreviousResponseUnknown, ConversationUnknown: it does not exist in this project, or no
                longer.
            ConversationLocked: another request is being answered with it.
            FeatureUnsupported: a line of a batch names one; lines are answered in any order.
            BodyTooLarge, RequestInvalid: with its history it is larger than a request may be.
        """
        asked = request.thread or Thread()
        # What a worker knows of that clock may be so much ahead of it.
        asked_us = self.conversations.now_us() - SECOND_US
        raw, data_class, history = request.raw, "S0", 0
        sources: Sequence[str] = ()
        keeps = asked.keeps and self._keep_us > 0
        answer_id = f"resp_{self._random_hex(ID_BYTES)}" if keeps else ""
        if asked.background:
            self._check_away(arrival, keeps=keeps)
        if asked.references:
            raw, data_class, sources = await self._spelled_out(project_of(principal), request)
        if asked.previous_id:
            kept = await self._continued(project_of(principal), asked.previous_id)
            raw, data_class = with_before(raw, _history(kept)), max(data_class, kept.data_class)
        adds = asked.keeps and bool(asked.conversation_id) and self.conversations.are_kept
        if asked.conversation_id:
            if arrival.errand is not None:
                raise refused("conversation", "Lines of a batch are answered in no order")
            found = await self.conversations.begin(
                request.request_id,
                project_of(principal),
                asked.conversation_id,
                takes=adds,
                is_away=asked.background,
            )
            data_class = max(data_class, found.data_class)
            if items := said(found):
                raw, history = with_before(raw, items), len(items)
        if asked.background:
            # From upstreams it comes as a stream: nothing ends a long answer while it arrives.
            raw, asked = as_stream(raw), structs.replace(asked, is_followed=request.stream)
        if raw is not request.raw:
            if len(raw) > self._body_bytes_max:
                raise BodyTooLarge("The request is too long together with its history.")
            check_values(raw, self._values_max)
            request = arrival.dialect.decode_request(raw, request.request_id, arrival.headers)
        thread = structs.replace(
            asked,
            asked_us=asked_us,
            sources=tuple(sources),
            keeps=keeps,
            answer_id=answer_id,
            data_class=data_class,
            adds=adds,
            history=history,
        )
        return structs.replace(request, thread=thread)

    def _check_away(self, arrival: Arrival, *, keeps: bool) -> None:
        """Raises FeatureUnsupported where an answer cannot be made in the background."""
        if arrival.errand is not None:
            raise refused("background", "Nobody waits for lines of a batch: leave it out")
        if not (keeps and self._makes_later):
            raise refused("background", "Answers are not made in the background here")

    async def _continued(self, project: Project, previous_id: str) -> KeptAnswer:
        """The answer that a request continues.

        Raises:
            PreviousResponseUnknown: there is none.
            RequestInvalid: it is still being made, or has failed.
        """
        kept = await self._store.find(project, previous_id, self._clock.utc_us())
        if kept is None:
            raise PreviousResponseUnknown(
                "There is no such previous response.", parameter="previous_response_id"
            )
        if is_unfinished(kept.response):
            reason = "The previous response is not complete: it is still being made, or has failed."
            raise RequestInvalid(reason, parameter="previous_response_id")
        return kept

    async def _spelled_out(
        self, project: Project, request: ChatRequest
    ) -> tuple[bytes, str, Sequence[str]]:
        """The body with the named items filled in, and the class and ids of their answers.

        Raises:
            FeatureUnsupported: an item does not exist in this project, or no longer.
        """
        assert request.thread is not None
        wanted = frozenset(request.thread.references)
        if len(wanted) > REFERENCES_MAX:
            raise refused("input", f"At most {REFERENCES_MAX} items can be named")
        now_us = self._clock.utc_us()
        data_class = "S0"
        found: dict[str, Fields | None] = {}
        answers = await self._store.holding(project, wanted, now_us)
        for answer_id in answers:
            kept = await self._store.find(project, answer_id, now_us)
            if kept is None:
                continue
            data_class = max(data_class, kept.data_class)
            for name, item in named_items(kept.response):
                # Where an upstream gave one name to two items, nobody knows which is meant.
                found[name] = item if found.get(name, item) == item else None
        return with_items(request.raw, found), data_class, answers

    async def keep(self, passage: Passage, response: bytes) -> None:
        """Keep an answer, and add it to its conversation; a failure is logged."""
        request = passage.request
        thread = request.thread
        if thread is None or not response:
            return
        answer, turn = self.answer_of(passage, response), turn_of(passage, response)
        await self.keeping.keep(Finished(request.request_id, answer, thread.keeps, turn))

    def answer_of(self, passage: Passage, response: bytes) -> KeptAnswer:
        """What will be kept of a request and its answer."""
        request, principal, now_us = passage.request, passage.principal, self._clock.utc_us()
        thread = request.thread or Thread()
        return KeptAnswer(
            answer_id=thread.answer_id,
            project=project_of(principal),
            key_id=principal.key_id,
            previous_id=thread.previous_id or thread.conversation_id,
            data_class=passage.inspection.data_class,
            created_us=now_us,
            expires_us=now_us + self._keep_us,
            input_items=msgspec.json.encode(input_items(FIELDS.decode(request.raw))),
            response=response,
            asked_us=thread.asked_us,
            subject=passage.subject,
            sources=thread.sources,
        )

    async def letting_go(self, request_id: str, relay: Relay, write: Write, direct: Direct) -> bool:
        """A stream that ends its turn with a conversation, however it ends."""
        try:
            return await relay(write, direct)
        finally:
            await self.let_go(request_id)

    async def let_go(self, request_id: str) -> None:
        """End a request's turn with a conversation, if it has one and adds nothing more."""
        if not self.keeping.has(request_id):
            await self.conversations.let_go(request_id)

    def note_kept(self, project: Project, length_bytes: int) -> None:
        """Note that more is kept: if a project has too much, its oldest answers will be deleted."""
        self._kept_bytes[project] += length_bytes
        if self._kept_bytes[project] >= self._project_bytes_max // LOOKS:
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

    async def find_kept(self, project: Project, answer_id: str) -> KeptAnswer | None:
        """An answer of a project; None if it does not exist, or no longer."""
        return await self._store.find(project, answer_id, self._clock.utc_us())

    async def discard(self, project: Project, answer_id: str) -> None:
        """Forget an answer of a project, if it is there; raises Unavailable."""
        await self._store.forget(project, answer_id)

    async def forget(self, principal: Principal, answer_id: str) -> None:
        """Forget an answer, also one still waiting to be kept, here or at another worker.

        This worker does not know what is waiting at others. Raises ResponseUnknown.
        """
        project = project_of(principal)
        waited = self.keeping.drop(project, answer_id)
        if await self._store.forget(project, answer_id) or waited:
            return
        if _ID.fullmatch(answer_id):
            # Another worker may have it that could not write it yet.
            await self._store.note_deleted(project, answer_id, self._clock.utc_us())
            if await self._store.forget(project, answer_id):
                return
        raise ResponseUnknown("There is no such response.")

    async def tidy(self) -> None:
        """Forget what has expired, and what exceeds a project's limit; raises NotReady."""
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


def items_of(response: bytes) -> list[str]:
    """The ids by which the answered items may be named."""
    return [name for name, _ in named_items(response)]


def turn_of(passage: Passage, response: bytes) -> Turn | None:
    """What a request adds to its conversation; None if it adds nothing."""
    request, thread = passage.request, passage.request.thread
    if thread is None or not thread.adds:
        return None
    return Turn(
        request.request_id,
        project_of(passage.principal),
        thread.conversation_id,
        asked=input_items(FIELDS.decode(request.raw))[thread.history :],
        answered=output_items(response),
        data_class=passage.inspection.data_class,
        user=end_user_reference(request.tree),
    )


def at_least(inspection: Inspection, request: ChatRequest) -> Inspection:
    """The inspection, with a data class not below the highest that the thread has had."""
    thread = request.thread
    if thread is None or thread.data_class <= inspection.data_class:
        return inspection
    return structs.replace(inspection, data_class=thread.data_class)


def without_keeping(request: ChatRequest) -> ChatRequest:
    """The same request, to be answered without keeping content."""
    thread = request.thread
    if thread is None or not (thread.keeps or thread.adds):
        return request
    return structs.replace(request, thread=structs.replace(thread, keeps=False, adds=False))


def _history(kept: KeptAnswer) -> list[msgspec.Raw]:
    """What was said up to an answer, and in it."""
    said = FIELDS.decode(kept.response).get("output", msgspec.Raw(b"[]"))
    return [*LIST.decode(kept.input_items), *as_input(bytes(said))]
