"""The pool as one provider: every member is an adapter of its own, all in one jurisdiction.

The dispatcher sees one upstream. A call goes to the member that the router chose; its load counts
from that moment until the reply is closed, however it ends. The pool itself never tries again: the
dispatcher does, and the pool then avoids a member that has just failed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from gateway.errors import (
    DENIED_STATUSES,
    ConfigurationInvalid,
    PoolBusy,
    RequestInvalid,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.oversight.workers import MemberReport
from gateway.pool.figures import Figures
from gateway.pool.following import Following, Publisher
from gateway.pool.members import Load, Member, PoolRules
from gateway.pool.observing import Observations, state_of
from gateway.pool.parity import Greedy, Sibling, sibling
from gateway.pool.prefixes import Prompt, prompt_of
from gateway.pool.reply import PoolReply
from gateway.pool.router import Router
from gateway.pool.speeds import SpeedWatch
from gateway.ports import ModelHost, ServedModel, UpstreamCall, UpstreamReply
from gateway.telemetry import Event, logger
from gateway.types import ChatRequest, DialectName, Target


OUTPUT_TOKENS_ASSUMED = 256.0
"""Expected length of an answer, for estimating load; never for prices."""
RECENT_FAILURE_S = 2.0
BAD_GATEWAY_MIN = 500
UNAVAILABLE = 503
DENIED = DENIED_STATUSES | {402}
"""A member does not accept our credential, or requires payment: this concerns it alone."""
DENIED_S = 30.0
"""How long it then gets only calls that no other member can take; a person has to fix that."""
DENIES = "it refused the credential that it was given"
DIFFERS = "it serves other weights than most members under the same name"


class Replica(ModelHost, Publisher, Greedy, Protocol):
    """A member's adapter."""

    async def figures(self) -> Figures | None:
        """The member's own figures on its load; None if it gives none."""
        ...


class PoolProvider:
    """Implements `gateway.ports.ModelHost` with several members."""

    counts_tokens = False

    def __init__(
        self,
        name: str,
        members: Mapping[str, Replica],
        monotonic_s: Callable[[], float],
        rules: PoolRules | None = None,
    ) -> None:
        """Raises ConfigurationInvalid unless all members have one jurisdiction and one dialect."""
        if not members:
            raise ConfigurationInvalid(f"providers.{name}", "members", "a pool has members")
        places = {(each.jurisdiction, each.dialect) for each in members.values()}
        if len(places) > 1:
            reason = "all members of a pool have one jurisdiction and one dialect"
            raise ConfigurationInvalid(f"providers.{name}", "members", reason)
        self.name = name
        self.jurisdiction, self.dialect = places.pop()
        self.rules = rules or PoolRules()
        self._hosts = dict(members)
        self.now_s = monotonic_s
        self.router = Router([Member(each, self.rules) for each in members], self.rules)
        self.speeds = SpeedWatch(self.router.members, self.rules)
        self._failed_s: dict[str, float] = {}
        self._denied_s: dict[str, float] = {}
        self.passed_over: Counter[tuple[str, int]] = Counter()
        """Calls that went to another member instead, by member and its status."""
        self._log = logger()
        self._served: dict[str, Sequence[ServedModel]] = {}
        self._down: dict[str, str] = {}
        self._differing: frozenset[str] = frozenset()
        self._observed = Observations()
        self.following = Following(self._hosts, self.router.prefixes)
        self._figures_s = float("-inf")

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The dialect of its members, which are all of one kind."""
        return next(iter(self._hosts.values())).speaks(request, target)

    @property
    def unavailable_reason(self) -> str:
        """Empty while at least one member can be called."""
        reasons = [each.unavailable_reason for each in self._hosts.values()]
        return "" if not all(reasons) else reasons[0]

    async def open(self, call: UpstreamCall) -> UpstreamReply:
        """See `gateway.ports.Provider`; the egress of the member checks the clearance.

        Raises:
            PoolBusy: no member is up or has room; a sovereign pool never spills over by itself.
            RequestInvalid: two members died with this request.
        """
        prompt = prompt_of(call.tenant.encode(), call.body, self.rules.bytes_per_token)
        now_s = self.now_s()
        until_s = now_s + call.deadline_s
        recent = self._denying(now_s) | {
            name for name, at_s in self._failed_s.items() if now_s - at_s < RECENT_FAILURE_S
        }
        asked: frozenset[str] = frozenset()
        passed_on: PoolReply | None = None
        name = ""
        while True:
            try:
                load = self._chosen(call, prompt, asked, recent)
            except (PoolBusy, RequestInvalid):
                if passed_on is None:
                    raise
                return passed_on  # With its own message and wait.
            if passed_on is not None:
                self.passed_over[name, passed_on.status] += 1
            name = load.member.name
            try:
                if passed_on is not None:
                    await passed_on.close()
                reply = await self._hosts[name].open(call)
            except BaseException as error:
                self.ended(load, prompt, error)
                raise
            if reply.status >= BAD_GATEWAY_MIN:
                self._failed_s[name] = self.now_s()
            self._note_denied(name, reply.status)
            asked |= {name}
            self.following.sent(name, call, prompt, prompt.tokens * self.rules.bytes_per_token)
            passed_on = PoolReply(self, reply, load, prompt)
            left_s = until_s - self.now_s()
            is_last = left_s <= 0 or not self._has_another(asked | recent)
            if is_last or not (reply.status == UNAVAILABLE or reply.status in DENIED):
                return passed_on
            # It drains, loads, is full or rejects us, and did nothing: the next one may accept.
            call = structs.replace(call, deadline_s=left_s)

    def _denying(self, now_s: float) -> frozenset[str]:
        """Members that recently refused our credential."""
        return frozenset(name for name, at_s in self._denied_s.items() if now_s - at_s < DENIED_S)

    def _note_denied(self, name: str, status: int) -> None:
        now_s = self.now_s()
        if status not in DENIED:
            if status < BAD_GATEWAY_MIN:
                self._denied_s.pop(name, None)
            return
        if name not in self._denying(now_s):
            self._log.warning(Event.MEMBER_DENIES, provider=self.name, reason=name)
        self._denied_s[name] = now_s

    def _chosen(
        self, call: UpstreamCall, prompt: Prompt, asked: frozenset[str], recent: frozenset[str]
    ) -> Load:
        return self.router.choose(
            prompt,
            OUTPUT_TOKENS_ASSUMED,
            self.now_s(),
            tenant=call.tenant,
            tier=call.service_tier,
            avoid=asked,
            rather_not=recent,
        )

    def _has_another(self, avoid: frozenset[str]) -> bool:
        return any(
            each.is_up and not each.is_draining and each.name not in avoid
            for each in self.router.members
        )

    def ended(self, load: Load, prompt: Prompt, error: BaseException | None) -> None:
        """Give the load back, and learn from how it ended."""
        member, now_s = load.member, self.now_s()
        member.end(load)
        if isinstance(error, UpstreamUnreachable):
            self._failed_s[member.name] = now_s
            self.following.lost(member.name)
            if error.has_left:
                self.router.died(prompt, member, now_s)
            else:
                self.router.lost(member)  # The prompt never arrived, so it is not suspect.
        elif isinstance(error, UpstreamTimeout):
            self._failed_s[member.name] = now_s

    async def probe(self) -> str:
        """Probe every member and reweigh slow ones; empty if one of them can answer."""
        self.following.start()
        names = list(self._hosts)
        asked = await asyncio.gather(*(self._probe(name) for name in names))
        for member, reason in zip(self.router.members, asked, strict=True):
            self._down[member.name] = reason
            if reason:
                if member.is_up:
                    self.router.prefixes.cleared(member.name)
                    self.following.lost(member.name)
                member.down()
            else:
                member.up(self.now_s())
        self._compare_models()
        self._tell_windows_apart()
        await self._look_at_figures()
        for member in self.speeds.tend(self.now_s()):
            self._log.warning(Event.MEMBER_SLOW, provider=self.name, reason=member.name)
        if any(member.is_up for member in self.router.members):
            return ""
        return next((reason for reason in asked if reason), "no member serves the same model")

    async def list_models(self) -> Sequence[ServedModel]:
        """The models on which the members agree, each with the longest window."""
        longest: dict[str, ServedModel] = {}
        for member in self.router.members:
            for model in self._served.get(member.name, ()) if member.is_up else ():
                known = longest.get(model.id)
                if known is None or model.window_tokens > known.window_tokens:
                    longest[model.id] = model
        return tuple(longest.values())

    def siblings(self) -> list[Sibling]:
        """The members that can be asked now, each with every model it serves."""
        return [
            sibling(self.name, member.name, model, self._hosts[member.name])
            for member in self.router.members
            if member.is_up and not member.is_draining
            for model in self._served.get(member.name, ())
        ]

    def keep_drained(self, members: Collection[str]) -> None:
        """Send nothing new to these members; calls under way there end by themselves.

        A member that is no longer drained begins slowly: its engine may have been restarted.
        """
        now_s = self.now_s()
        for each in self.router.members:
            is_draining = each.name in members
            if each.is_draining and not is_draining:
                each.up_since_s = now_s
            if each.is_draining != is_draining:
                event = Event.MEMBER_DRAINED if is_draining else Event.MEMBER_RESUMED
                self._log.info(event, provider=self.name, reason=each.name)
            each.is_draining = is_draining

    def renewed(self, member: str, host: Replica) -> None:
        """Call a member through a new adapter: its credential changed."""
        if member in self._hosts:
            self._hosts[member] = host
            self._denied_s.pop(member, None)
            self.following.renewed(member, host)

    @property
    def draining(self) -> Mapping[str, int]:
        """The drained members, each with the number of its calls still under way."""
        return {each.name: each.calls for each in self.router.members if each.is_draining}

    def seen(self) -> list[MemberReport]:
        """Reports of its members, for people to read."""
        now_s = self.now_s()
        denying = self._denying(now_s)
        return [
            MemberReport(
                provider=self.name,
                member=each.name,
                engine=self._hosts[each.name].kind,
                state=state_of(each, now_s) if each.name in self._down else "unknown",
                reason=self._down.get(each.name) or (DENIES if each.name in denying else ""),
                models=tuple(model.id for model in self._served.get(each.name, ())),
                calls=each.calls,
                weight=each.weight,
                token_ms=self.speeds.token_ms(each),
                **self._observed.told(each.name, now_s),
            )
            for each in self.router.members
        ]

    async def close(self) -> None:
        await self.following.close()
        for host in self._hosts.values():
            await host.close()

    async def _probe(self, name: str) -> str:
        host = self._hosts[name]
        if reason := await host.probe():
            return reason
        try:
            self._served[name] = await host.list_models()
        except UpstreamFailed as error:
            return error.message
        return ""

    async def _look_at_figures(self) -> None:
        """Read members' queue figures every few seconds; a missing answer has no effect."""
        now_s = self.now_s()
        if now_s - self._figures_s < self.rules.figures_every_s:
            return
        self._figures_s = now_s
        members = [member for member in self.router.members if member.is_up]
        asked = [self._hosts[member.name].figures() for member in members]
        for member, found in zip(
            members, await asyncio.gather(*asked, return_exceptions=True), strict=True
        ):
            if isinstance(found, Figures):
                member.heard(found.waiting, found.running, found.cache_use)
                self._observed.note(member.name, found, now_s)
            elif isinstance(found, BaseException) and not isinstance(found, UpstreamFailed):
                raise found

    def _tell_windows_apart(self) -> None:
        """Members with a longer window than others are kept for the prompts that need it."""
        windows = {
            member.name: max(
                (model.window_tokens for model in self._served.get(member.name, ())), default=0
            )
            for member in self.router.members
        }
        known = [window for window in windows.values() if window]
        if known:
            self.router.sort_by_window(windows, min(known))

    def _compare_models(self) -> None:
        """Members whose weights differ from most under the same name get nothing.

        Answers of one target must not depend on which replica gave them.
        """
        votes: dict[tuple[str, str], int] = {}
        for member in self.router.members:
            if member.is_up:
                for model in self._served.get(member.name, ()):
                    key = (model.id, model.digest)
                    votes[key] = votes.get(key, 0) + 1
        best: dict[str, str] = {}
        for (model_id, digest), _ in sorted(votes.items(), key=lambda item: (item[1], item[0])):
            best[model_id] = digest
        differing = set()
        for member in self.router.members:
            served = self._served.get(member.name, ()) if member.is_up else ()
            if any(model.digest != best.get(model.id, model.digest) for model in served):
                differing.add(member.name)
                member.down()
                self._down[member.name] = DIFFERS
        for name in sorted(differing - self._differing):  # Logged once only.
            self._log.warning(Event.MEMBER_DIFFERS, provider=self.name, reason=name)
        self._differing = frozenset(differing)
