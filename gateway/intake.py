"""The first half of a journey: from the door to an intent that is durable.

Gather → decide → act: identity, inspection and budgets are looked up before `planning.rule`
decides, and the intent is on disk before anything may leave. Every stage takes the previous noun.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from gateway.admission.bounds import answers_of, check_bounds
from gateway.admission.destinations import check_destinations
from gateway.admission.unread import told_unread
from gateway.caching.answering import CachingAnswers
from gateway.clock import Clock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Settings
from gateway.continuing.threads import Threads, at_least, without_keeping
from gateway.dispatch.attempts import is_stopped
from gateway.dispatch.dispatcher import Dispatcher
from gateway.errors import (
    ClientGone,
    ClosedByPolicy,
    FeatureUnsupported,
    GatewrightError,
    PolicyDenied,
    Unauthenticated,
    WorkerStopped,
)
from gateway.heads import refusal_headers
from gateway.identity import Peppers, authenticate
from gateway.inspection.inspector import Inspector
from gateway.money.budgets import account_of_end_user, end_user_reference, end_user_subject
from gateway.money.rates import NO_LIMITS, Permit, Rates
from gateway.pacing.turns import Turns
from gateway.passage import Arrival, Passage
from gateway.ports import AuditLog, Ledger
from gateway.recording import evidence
from gateway.rollout.versions import Governing
from gateway.routing import planning
from gateway.types import ChatRequest, Inspection, Principal
from gateway.veiling.veil import Veil, veiled
from policies.program import PolicyDocument


if TYPE_CHECKING:
    from gateway.workloads.callers import Callers


class Stages(Struct, frozen=True):
    """The parts of both halves of a journey; assembled once, in `gateway.app`."""

    peppers: Peppers
    inspector: Inspector
    ledger: Ledger
    rates: Rates
    audit: AuditLog
    dispatcher: Dispatcher
    answers: CachingAnswers
    conclusion: Conclusion
    clock: Clock
    threads: Threads
    turns: Turns
    settings: Settings
    callers: "Callers | None" = None
    """Identifies callers by tokens; None where no issuer is trusted."""


class Asked(Struct, frozen=True):
    """A request that was read, counted and inspected: the input of a decision."""

    arrival: Arrival
    principal: Principal
    request: ChatRequest
    inspection: Inspection
    governing: Governing
    governed: PolicyDocument
    """The governing version that applies to this caller."""
    accounts: tuple[str, ...]
    """The accounts that pay."""
    permit: Permit


class Intake:
    """Lets requests through, or says why not; both are recorded."""

    def __init__(self, stages: Stages) -> None:
        self._peppers = stages.peppers
        self._callers = stages.callers
        self._inspector = stages.inspector
        self._ledger = stages.ledger
        self._rates = stages.rates
        self._audit = stages.audit
        self._conclusion = stages.conclusion
        self._aftermath = stages.conclusion.aftermath
        self._threads = stages.threads
        self._turns = stages.turns
        self._limits = stages.settings.limits
        self._requests = stages.settings.requests
        self.clock = stages.clock
        self.dispatcher = stages.dispatcher

    async def let_through(
        self, arrival: Arrival, read_body: Callable[[], Awaitable[bytes]]
    ) -> Passage:
        """Take one request from the door to its intent.

        Raises:
            GatewrightError: it is refused; that has been recorded.
        """
        principal: Principal | None = None
        request: ChatRequest | None = None
        inspection: Inspection | None = None
        permit = NO_LIMITS
        try:
            try:
                principal = self.identify(arrival)
            except Unauthenticated as refusal:
                principal = await self.identify_otherwise(arrival, refusal)
            await self._turns
            request = arrival.dialect.decode_request(
                await read_body(), arrival.request_id, arrival.headers
            )
            await self._turns
            if request.thread is not None:
                request = await self._threads.resume(arrival, principal, request)
            if reference := end_user_reference(request.tree):
                # Before anything is refused: a search for a person must find refusals, too.
                request = self._with_end_user(principal, request, reference)
            check_destinations(request, self._requests)
            check_bounds(request, self._limits)
            governing = arrival.snapshot.policies.governing(principal)
            governed = governing.document_for(principal)
            planning.check_model(request, arrival.snapshot.board, governed, principal.models)
            accounts = self._paying_accounts(principal, request.end_user)
            permit = await self._rates.admit(accounts, _most_tokens(request))
            reads = governing.facts_read(governed)
            inspection = at_least(
                await self._inspector.inspect(
                    request, principal.organisation, reads, principal.key_id
                ),
                request,
            )
            await self._turns
            return await self._admit(
                Asked(
                    arrival, principal, request, inspection, governing, governed, accounts, permit
                )
            )
        except GatewrightError as error:
            self._rates.take_back(permit)
            record = await self._conclusion.refused(arrival, principal, request, inspection, error)
            error.evidence = refusal_headers(error, record, principal)
            raise
        except BaseException as error:
            self._rates.take_back(permit)
            why = _ended_by(error)
            telling = self._conclusion.refused(arrival, principal, request, inspection, why)
            await asyncio.shield(telling)
            raise

    def identify(self, arrival: Arrival) -> Principal:
        """Who asks; raises Unauthenticated."""
        keys, arrived_us = arrival.snapshot.keys, arrival.arrived_us
        return authenticate(keys, self._peppers, arrival.headers, arrived_us)

    async def identify_otherwise(self, arrival: Arrival, refusal: Unauthenticated) -> Principal:
        """Who asks, if not by a key of ours; raises Unauthenticated, or Unavailable."""
        if self._callers is None:
            raise refusal
        return await self._callers.principal(arrival.headers, arrival.arrived_us)

    def defer(
        self, arrival: Arrival, principal: Principal, request: ChatRequest, ruling: planning.Ruling
    ) -> tuple[Arrival, planning.Ruling]:
        """What is to be done, which a subclass may postpone; here it is done at once."""
        del principal, request
        return arrival, ruling

    async def _admit(self, asked: Asked) -> Passage:
        """Decide, reserve, and write the intent down; after this bytes may leave."""
        arrival, principal, request = asked.arrival, asked.principal, asked.request
        left_microusd = await self._ledger.left_now_microusd(asked.accounts)
        now_us = self.clock.utc_us()
        ruling = self._ruling(asked, left_microusd, now_us)
        self._aftermath.decided(asked.governing, ruling)
        await self._turns
        content: bytes | None = request.raw
        if ruling.plan.audit_content != "encrypted":
            request, content = await self._with_less_kept(arrival, principal, request, ruling)
        obligations = ruling.decision.obligations
        veil: Veil | None = None
        if obligations.pseudonymise or obligations.redact:
            veil = await self._veiled(arrival, principal, request, one_way=obligations.redact)
        sent = request if veil is None else veil.request
        plan = self.dispatcher.prepare(sent, ruling.plan, principal.translation)
        if plan is not ruling.plan:
            ruling = structs.replace(ruling, plan=plan)
        arrival, ruling = self.defer(arrival, principal, sent, ruling)
        reservation = await self._ledger.reserve(
            asked.accounts, ruling.plan.worst_cost_microusd, ruling.plan.reserved_for_s
        )
        try:
            await self._turns
            record = evidence.intent(
                principal,
                request,
                asked.inspection,
                ruling,
                reservation,
                arrival=arrival,
                decided_us=now_us,
            )
            receipt = await self._audit.append(record, content)
        except BaseException:
            self._ledger.release(reservation)
            raise
        return Passage(
            arrival=arrival,
            principal=principal,
            request=request,
            inspection=asked.inspection,
            ruling=ruling,
            reservation=reservation,
            intent=receipt,
            permit=asked.permit,
            veil=veil,
            subject=record.subject,
            output=self._inspector.output_scan(request, obligations.scan_output),
        )

    async def weigh(self, arrival: Arrival, principal: Principal, raw: bytes) -> str:
        """The data class of what is to be kept outside of requests, if policy lets all be kept.

        `raw` is the request that would ask it. Nothing is sent or reserved for it, but it counts
        against its key's limits and its refusal is recorded, as at the doors: nobody may use this
        to try out what the doors would let through.

        Raises:
            GatewrightError: no target may be asked it.
            PolicyDenied: the log would not keep all of such a request.
        """
        request: ChatRequest | None = None
        inspection: Inspection | None = None
        permit = NO_LIMITS
        try:
            await self._turns
            request = arrival.dialect.decode_request(raw, arrival.request_id, arrival.headers)
            if request.thread is not None and request.thread.references:
                reason = "Send the item itself, and not its name"
                raise FeatureUnsupported(f"input: {reason} (rule 56).", parameter="input")
            check_destinations(request, self._requests)
            check_bounds(request, self._limits)
            governing = arrival.snapshot.policies.governing(principal)
            governed = governing.document_for(principal)
            permit = await self._rates.admit(principal.accounts, 0)
            reads = governing.facts_read(governed)
            inspection = await self._inspector.inspect(
                request, principal.organisation, reads, principal.key_id
            )
            asked = Asked(
                *(arrival, principal, request, inspection, governing, governed),
                accounts=principal.accounts,
                permit=permit,
            )
            left_microusd = self._ledger.left_microusd(asked.accounts)
            ruling = self._ruling(asked, left_microusd, self.clock.utc_us())
            if ruling.plan.audit_content != "encrypted":
                raise PolicyDenied("Policy does not let this be kept (`audit_content`).")
        except GatewrightError as error:
            self._rates.take_back(permit)
            record = await self._conclusion.refused(arrival, principal, request, inspection, error)
            error.evidence = refusal_headers(error, record, principal)
            raise
        except BaseException:
            self._rates.take_back(permit)
            raise
        self._rates.release(permit, 0)
        return inspection.data_class

    def _ruling(self, asked: Asked, left_microusd: int | None, now_us: int) -> planning.Ruling:
        """What policy says of this request now."""
        principal, request = asked.principal, asked.request
        snapshot = asked.arrival.snapshot
        facts = planning.gather(
            request,
            principal,
            asked.inspection,
            left_microusd,
            now_us,
            snapshot.board,
            headers=planning.visible_headers(
                asked.arrival.headers, snapshot.policies.visible_headers
            ),
            warm=self._conclusion.warm(snapshot.policies, principal, request),
        )
        try:
            return planning.rule(asked.governed, facts, request, snapshot.board, self._limits)
        except GatewrightError as error:
            error.message += told_unread(asked.inspection.incomplete_reasons)
            raise

    async def _with_less_kept(
        self,
        arrival: Arrival,
        principal: Principal,
        request: ChatRequest,
        ruling: planning.Ruling,
    ) -> tuple[ChatRequest, bytes | None]:
        """Where policy says not to keep all: the request without keeping, and what the log keeps.

        Raises:
            PolicyDenied: its answer would have to wait here for its caller.
        """
        if request.thread is not None and request.thread.background:
            reason = "Policy does not let the answer be kept (`audit_content`): ask without"
            raise PolicyDenied(f"{reason} `background`.")
        forgotten = without_keeping(request)
        if ruling.plan.audit_content == "none":
            return forgotten, None
        try:
            black = await self._veiled(arrival, principal, request, one_way=True)
        except ClosedByPolicy:
            # What cannot be redacted for certain is not kept.
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
        """The request with its end user under the name that evidence and other dialects use."""
        subject = end_user_subject(principal.organisation, name, self._peppers.keyed)
        return structs.replace(request, end_user=subject)

    def _paying_accounts(self, principal: Principal, end_user: str) -> tuple[str, ...]:
        """The accounts that pay: the key's levels, and perhaps that of an end user who is named."""
        if not end_user or not (
            self._ledger.limits_end_users(principal.organisation)
            or principal.organisation in self._rates.tells_end_users_apart
        ):
            return principal.accounts
        return (*principal.accounts, account_of_end_user(principal.organisation, end_user))


def _most_tokens(request: ChatRequest) -> int:
    """The tokens that a request counts as until their true number is known."""
    return request.input_tokens_most + (request.max_output_tokens or 0) * answers_of(request)


def _ended_by(error: BaseException) -> GatewrightError:
    """The error to record where the caller left, or we failed, before anything was sent."""
    if is_stopped(error):
        return WorkerStopped("The worker ended before anything was sent.")
    if isinstance(error, asyncio.CancelledError):
        return ClientGone("The caller left before anything was sent.")
    return GatewrightError("The gateway failed before anything was sent.")
