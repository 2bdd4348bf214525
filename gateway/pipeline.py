"""The journey of one request, in order. Read this file first.

Gather → decide → act: identity, inspection and budgets are looked up before `routing.rule` decides;
the intent is durable before `dispatch` sends a byte; the outcome is durable before the caller sees
the end. Every stage takes the noun before it and adds one of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec import Struct, structs

from gateway import evidence, routing
from gateway.admission.bounds import answers_of, check_bounds
from gateway.admission.destinations import check_destinations
from gateway.answers import stopped_by
from gateway.caching.answering import CachingAnswers
from gateway.clock import Clock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Settings
from gateway.dispatch.attempts import AttemptLog, end_code
from gateway.dispatch.dispatcher import Answered, Dispatcher
from gateway.errors import ClientGone, ClosedByPolicy, GatewrightError
from gateway.heads import (
    Begin,
    answer_headers,
    begin_early,
    fail_late,
    ping_early,
    refusal_headers,
)
from gateway.identity import Peppers, authenticate
from gateway.inspection import Inspector
from gateway.money.budgets import end_user_account, end_user_reference, end_user_subject
from gateway.money.catalogue import saved_by_cache
from gateway.money.rates import NO_LIMITS, Permit, Rates
from gateway.passage import UNMET, Arrival, Passage, unmet_format, unsound_whole
from gateway.pings import Pings, Write
from gateway.ports import AuditLog, Ledger
from gateway.relay import Direct, Relay
from gateway.rollout.versions import Governing
from gateway.tally import usage_of
from gateway.threads import Threads, at_least, without_keeping
from gateway.turns import Turns
from gateway.types import ChatRequest, Completion, Inspection, Principal
from gateway.veiling.veil import Veil, veiled
from policies.program import PolicyDocument


class WholeAnswer(Struct, frozen=True):
    """An answer that is ready to be sent."""

    body: bytes
    headers: Mapping[str, str]


class StreamedAnswer(Struct, frozen=True):
    """An answer that is still arriving; `relay` writes it to its end, straight where it can.

    It says whether the body may end as if the answer were whole; where it may not, it is cut.
    """

    headers: Mapping[str, str]
    relay: Callable[[Write, Direct], Awaitable[bool]]


class Pipeline:
    """The stages of the data plane, wired once by `gateway.app`."""

    def __init__(  # noqa: PLR0913 - one argument per stage
        self,
        *,
        peppers: Peppers,
        inspector: Inspector,
        ledger: Ledger,
        rates: Rates,
        audit: AuditLog,
        dispatcher: Dispatcher,
        answers: CachingAnswers,
        conclusion: Conclusion,
        clock: Clock,
        threads: Threads,
        turns: Turns,
        settings: Settings,
    ) -> None:
        self._peppers = peppers
        self._inspector = inspector
        self._ledger = ledger
        self._rates = rates
        self._audit = audit
        self._dispatcher = dispatcher
        self._answers = answers
        self._conclusion = conclusion
        self._clock = clock
        self._threads = threads
        self._turns = turns
        self._limits = settings.limits
        self._requests = settings.requests

    async def serve(
        self, arrival: Arrival, read_body: Callable[[], Awaitable[bytes]], begin: Begin
    ) -> WholeAnswer | StreamedAnswer:
        """Take one request from the door to its answer.

        `begin` is called where a stream's caller must be told something before it has an answer.

        Raises:
            GatewrightError: the answer is an error; its outcome has been recorded.
        """
        passage = await self.let_through(arrival, read_body)
        is_stream = passage.request.stream
        return await (self._stream(passage, begin) if is_stream else self._complete(passage))

    async def let_through(
        self, arrival: Arrival, read_body: Callable[[], Awaitable[bytes]]
    ) -> Passage:
        """The first half: up to the intent. Raises like `serve`."""
        principal: Principal | None = None
        request: ChatRequest | None = None
        inspection: Inspection | None = None
        permit = NO_LIMITS
        try:
            principal = self._identify(arrival)
            await self._turns
            request = arrival.dialect.decode_request(
                await read_body(), arrival.request_id, arrival.headers
            )
            await self._turns
            if request.thread is not None:
                request = await self._threads.resume(arrival, principal, request)
            check_destinations(request, self._requests)
            check_bounds(request, self._limits)
            governing = arrival.snapshot.policies.governing(principal)
            governed = governing.document_for(principal)
            routing.check_model(request, arrival.snapshot.board, governed, principal.models)
            accounts = principal.accounts
            if reference := end_user_reference(request.tree):
                request = self._with_end_user(principal, request, reference)
                accounts = self._paying_accounts(principal, reference)
            permit = await self._rates.admit(accounts, _most_tokens(request))
            reads = governing.facts_read(governed)
            inspection = at_least(
                await self._inspector.inspect(request, principal.organisation, reads), request
            )
            await self._turns
            return await self._admit(
                arrival,
                principal,
                request,
                inspection,
                governing,
                governed,
                accounts=accounts,
                permit=permit,
            )
        except GatewrightError as error:
            self._rates.take_back(permit)
            record = await self._conclusion.refused(arrival, principal, request, inspection, error)
            error.evidence = refusal_headers(error, record, principal)
            raise
        except BaseException as error:
            self._rates.take_back(permit)
            ended = _ended_by(error)
            await asyncio.shield(
                self._conclusion.refused(arrival, principal, request, inspection, ended)
            )
            raise

    def _identify(self, arrival: Arrival) -> Principal:
        """Who asks; raises Unauthenticated."""
        keys, arrived_us = arrival.snapshot.keys, arrival.arrived_us
        return authenticate(keys, self._peppers, arrival.headers, arrived_us)

    async def _admit(
        self,
        arrival: Arrival,
        principal: Principal,
        request: ChatRequest,
        inspection: Inspection,
        governing: Governing,
        governed: PolicyDocument,
        *,
        accounts: tuple[str, ...],
        permit: Permit,
    ) -> Passage:
        """Decide, reserve, and write the intent down; after this bytes may leave."""
        snapshot, now_us = arrival.snapshot, self._clock.utc_us()
        facts = routing.gather(
            request,
            principal,
            inspection,
            self._ledger.left_microusd(accounts),
            now_us,
            snapshot.board,
            headers=routing.visible_headers(arrival.headers, snapshot.policies.visible_headers),
            warm=self._conclusion.warm(snapshot.policies, principal, request),
        )
        ruling = routing.rule(governed, facts, request, snapshot.board, self._limits)
        self._conclusion.decided(governing, ruling)
        await self._turns
        content: bytes | None = request.raw
        if ruling.plan.audit_content != "encrypted":
            request, content = await self._with_less_kept(arrival, principal, request, ruling)
        obligations = ruling.decision.obligations
        veil: Veil | None = None
        if obligations.pseudonymise or obligations.redact:
            veil = await self._veiled(arrival, principal, request, one_way=obligations.redact)
        sent = request if veil is None else veil.request
        plan = self._dispatcher.prepare(sent, ruling.plan, principal.translation)
        ruling = structs.replace(ruling, plan=plan) if plan is not ruling.plan else ruling
        arrival, ruling = self._deferred(arrival, principal, sent, ruling)
        reservation = await self._ledger.reserve(
            accounts, ruling.plan.worst_cost_microusd, ruling.plan.reserved_for_s
        )
        try:
            await self._turns
            record = evidence.intent(
                principal, request, inspection, ruling, reservation, arrival=arrival, utc_us=now_us
            )
            receipt = await self._audit.append(record, content)
        except BaseException:
            self._ledger.release(reservation)
            raise
        return Passage(
            arrival,
            principal,
            request,
            inspection,
            ruling,
            reservation,
            receipt,
            permit,
            veil,
            record.subject,
            self._inspector.output_scan(request, obligations.scan_output),
        )

    def _deferred(
        self, arrival: Arrival, principal: Principal, request: ChatRequest, ruling: routing.Ruling
    ) -> tuple[Arrival, routing.Ruling]:
        """What is to be done, where it need not be done now; a caller who waits gets it now."""
        del principal, request
        return arrival, ruling

    async def _with_less_kept(
        self,
        arrival: Arrival,
        principal: Principal,
        request: ChatRequest,
        ruling: routing.Ruling,
    ) -> tuple[ChatRequest, bytes | None]:
        """Where policy says that not all is kept: a request to forget, and what the log keeps."""
        forgotten = without_keeping(request)
        if ruling.plan.audit_content == "none":
            return forgotten, None
        try:
            black = await self._veiled(arrival, principal, request, one_way=True)
        except ClosedByPolicy:
            # What cannot be blackened for certain is not kept.
            return forgotten, None
        return forgotten, black.request.raw

    async def _veiled(
        self, arrival: Arrival, principal: Principal, request: ChatRequest, *, one_way: bool
    ) -> Veil:
        """What policy's `pseudonymise` or `redact` makes of the request."""
        return veiled(
            request,
            arrival.headers,
            arrival.dialect,
            await self._inspector.locate(request, principal.organisation),
            self._peppers.keyed(f"pseudonyms {principal.organisation}"),
            one_way=one_way,
        )

    def _with_end_user(self, principal: Principal, request: ChatRequest, name: str) -> ChatRequest:
        """The request with the end user it names as evidence and other dialects know him."""
        subject = end_user_subject(principal.organisation, name, self._peppers.keyed)
        return structs.replace(request, end_user=subject)

    def _paying_accounts(self, principal: Principal, reference: str) -> tuple[str, ...]:
        """Whose money it is where an end user is named: the key's levels, perhaps his own too."""
        if not (
            self._ledger.limits_end_users(principal.organisation)
            or principal.organisation in self._rates.tells_end_users_apart
        ):
            return principal.accounts
        account = end_user_account(principal.organisation, reference, self._peppers.keyed)
        return (*principal.accounts, account)

    async def _complete(self, passage: Passage) -> WholeAnswer:
        attempts = AttemptLog()
        return await self._end(passage, attempts, lambda: self._answers.complete(passage, attempts))

    async def _end(
        self, passage: Passage, attempts: AttemptLog, answer: Callable[[], Awaitable[Answered]]
    ) -> WholeAnswer:
        """Read an answer and conclude; whatever happens, there is an outcome afterwards."""
        try:
            answered = await answer()
            completion, body = self._encoded(passage, answered)
        except GatewrightError as error:
            concluded = await self._conclusion.failed(passage, attempts, error)
            error.evidence = answer_headers(passage, None, concluded=concluded)
            raise
        except BaseException as error:
            await asyncio.shield(self._break_off(passage, attempts, error))
            raise
        target, usage = answered.candidate.target, completion.usage
        unmet = unmet_format(passage, answered.dropped, completion.text)
        concluded = await self._conclusion.answered(
            passage,
            attempts,
            target,
            usage,
            completion.raw[: self._limits.audited_reply_bytes_max],
            (*answered.dropped, UNMET) if unmet else answered.dropped,
            stop_reason=stopped_by(completion),
            unsound=partial(unsound_whole, passage, completion),
        )
        await self._threads.keep(passage, body)
        headers = answer_headers(passage, target, answered.dropped, concluded)
        headers |= attempts.told
        if usage.estimated:
            headers["x-gatewright-usage"] = "estimated"
        if unmet:
            headers["x-gatewright-schema"] = f"unmet at {unmet}"
        if saved := saved_by_cache(target.price, usage):
            headers["x-gatewright-cache-saved-microusd"] = str(saved)
        return WholeAnswer(body, headers)

    def _encoded(self, passage: Passage, answered: Answered) -> tuple[Completion, bytes]:
        """The answer with a usage in any case, and as its caller gets it."""
        completion, request = answered.completion, passage.request
        usage = usage_of(completion, request, answered.candidate.target.vendor)
        if usage is not completion.usage:
            completion = structs.replace(completion, usage=usage)
        return completion, passage.arrival.dialect.encode_reply(
            completion, answered.source, request
        )

    async def _stream(self, passage: Passage, begin: Begin) -> StreamedAnswer:
        attempts = AttemptLog()
        pings = Pings(
            self._limits.ping_every_s,
            partial(begin_early, passage, begin),
            partial(ping_early, passage),
        )
        try:
            live = await self._answers.open_stream(passage, attempts)
        except GatewrightError as error:
            # On record before a ping is waited for: its caller may be about to leave.
            try:
                concluded = await self._conclusion.failed(passage, attempts, error)
            finally:
                await pings.stop()
            if not pings.have_begun:
                error.evidence = answer_headers(passage, None, concluded=concluded)
                raise
            return StreamedAnswer({}, partial(fail_late, passage, error))
        except BaseException as error:
            pings.cancel()
            await asyncio.shield(self._break_off(passage, attempts, error))
            raise
        relay = Relay(
            passage,
            attempts,
            live,
            self._conclusion,
            kept_bytes_max=self._limits.audited_reply_bytes_max,
            keep=self._threads.keep,
            pings=pings,
        )
        headers = answer_headers(passage, live.candidate.target, live.dropped)
        return StreamedAnswer({**headers, **attempts.told}, relay.run)

    async def _break_off(
        self, passage: Passage, attempts: AttemptLog, error: BaseException
    ) -> None:
        """The caller left, or we failed, before anything came back: what left may be billed."""
        await self._conclusion.broken_off(passage, attempts, b"", end_code(error))


def _most_tokens(request: ChatRequest) -> int:
    """What a request is counted for until its true number is known."""
    return request.input_tokens_most + (request.max_output_tokens or 0) * answers_of(request)


def _ended_by(error: BaseException) -> GatewrightError:
    """What is written down where the caller left, or we failed, before anything was sent."""
    if isinstance(error, asyncio.CancelledError):
        return ClientGone("The caller left before anything was sent.")
    return GatewrightError("The gateway failed before anything was sent.")
