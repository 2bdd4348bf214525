"""The pool as one provider: members are chosen, counted, compared and given up."""

from collections.abc import Sequence

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.clock import StoppedClock
from gateway.errors import (
    ConfigurationInvalid,
    PoolBusy,
    RequestInvalid,
    SovereigntyViolation,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.pool.exact import CacheChain, CacheReport
from gateway.pool.figures import Figures
from gateway.pool.parity import ANSWER_TOKENS, QUESTION
from gateway.pool.prefixes import Prompt, prompt_of
from gateway.pool.provider import PoolProvider
from gateway.ports import UpstreamCall
from gateway.providers.engine import EngineModel
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.providers.samples import HOME, make_call


pytestmark = pytest.mark.anyio
GONE = ScriptedReply(refusal=UpstreamUnreachable("gone"))


def with_body(body: bytes) -> UpstreamCall:
    return msgspec.structs.replace(make_call(), body=body)


class Host(ScriptedProvider):
    """A scripted engine that says what it serves."""

    def __init__(self, name: str, jurisdiction: str = HOME, digest: str = "d1") -> None:
        super().__init__(name, jurisdiction)
        self.models: Sequence[EngineModel] = (EngineModel("fake-model", digest),)
        self.kind = "gatewright"
        self.told: Figures | None = None
        self.event_addresses = ("", "")
        self.tells_cache = False
        self.greedy_answers = ["six, seven"]
        self.asked_greedily = 0
        self.asked_models: set[str] = set()

    def salt_of(self, call: UpstreamCall) -> str:
        return f"salt of {call.tenant}"

    async def tokens_of(self, call: UpstreamCall) -> Sequence[int]:
        """A token for every four bytes of the body, as an engine might cut it."""
        body = call.body
        return [int.from_bytes(body[at : at + 4]) for at in range(0, len(body), 4)]

    async def cache_news(self, epoch: str, since: int) -> CacheReport:
        raise UpstreamTimeout("it tells nothing")

    async def chain_of(self, call: UpstreamCall) -> CacheChain:
        raise UpstreamTimeout("it tells nothing")

    async def figures(self) -> Figures | None:
        return self.told

    async def greedy(self, model: str, question: str, tokens: int) -> str:
        assert (question, tokens) == (QUESTION, ANSWER_TOKENS)
        self.asked_models.add(model)
        answer = self.greedy_answers[min(self.asked_greedily, len(self.greedy_answers) - 1)]
        self.asked_greedily += 1
        if not answer:
            raise UpstreamTimeout("late")
        return answer

    async def list_models(self) -> Sequence[EngineModel]:
        return self.models


class Pool:
    def __init__(self, *hosts: Host) -> None:
        self.clock = StoppedClock()
        self.hosts = {host.name: host for host in hosts or (Host("a"), Host("b"), Host("c"))}
        self.provider = PoolProvider("house", self.hosts, self.clock.monotonic_s)

    def prompt(self, body: bytes, tenant: str) -> Prompt:
        return prompt_of(tenant.encode(), body, self.provider.rules.bytes_per_token)

    @property
    def calls(self) -> int:
        return sum(member.calls for member in self.provider.router.members)


def test_a_pool_is_of_one_jurisdiction_and_has_members() -> None:
    with pytest.raises(ConfigurationInvalid, match="one jurisdiction"):
        Pool(Host("a"), Host("b", "elsewhere"))
    with pytest.raises(ConfigurationInvalid, match="has members"):
        PoolProvider("house", {}, StoppedClock().monotonic_s)


async def test_load_counts_from_the_choice_to_the_close() -> None:
    pool = Pool()
    reply = await pool.provider.open(make_call())
    assert pool.calls == 1
    assert await reply.read()
    await reply.close()
    await reply.close()
    assert pool.calls == 0


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_what_the_member_calls_the_call_is_passed_on(status: int) -> None:
    pool = Pool(Host("a"))
    pool.hosts["a"].add(ScriptedReply(status=status, upstream_ids=("req_a",)))
    reply = await pool.provider.open(make_call())
    assert (reply.status, reply.upstream_ids) == (status, ("req_a",))
    await reply.close()


async def test_the_clearance_is_checked_at_the_member_and_nothing_is_counted() -> None:
    pool = Pool()
    with pytest.raises(SovereigntyViolation):
        await pool.provider.open(make_call(clearance=frozenset({"elsewhere"})))
    assert pool.calls == 0
    assert not any(host.calls for host in pool.hosts.values())


async def test_a_member_that_failed_is_avoided_and_one_that_is_gone_is_down() -> None:
    pool = Pool(Host("a"), Host("b"))
    for host in pool.hosts.values():
        host.add(GONE)
    with pytest.raises(UpstreamUnreachable):
        await pool.provider.open(make_call())
    assert [member.is_up for member in pool.provider.router.members].count(False) == 1
    with pytest.raises(UpstreamUnreachable):
        await pool.provider.open(with_body(b'{"messages":["another"]}'))
    with pytest.raises(PoolBusy):
        await pool.provider.open(with_body(b'{"messages":["a third"]}'))
    assert await pool.provider.probe() == ""
    assert (await pool.provider.open(with_body(b'{"messages":["x"]}'))).status == 200
    assert pool.calls == 1


async def test_what_killed_two_members_is_refused() -> None:
    pool = Pool()
    for host in pool.hosts.values():
        host.add(GONE)
    for _ in range(2):
        with pytest.raises(UpstreamUnreachable):
            await pool.provider.open(make_call())
        await pool.provider.probe()
    with pytest.raises(RequestInvalid, match="Two engines died"):
        await pool.provider.open(make_call())


async def test_what_reached_no_member_is_suspected_of_nothing() -> None:
    pool = Pool()
    for host in pool.hosts.values():
        refused = UpstreamUnreachable("refused")
        refused.has_left = False
        host.add(ScriptedReply(refusal=refused))
    for _ in pool.hosts:
        with pytest.raises(UpstreamUnreachable):
            await pool.provider.open(make_call())
    assert not any(member.is_up for member in pool.provider.router.members)
    await pool.provider.probe()
    assert (await pool.provider.open(make_call())).status == 200


async def test_a_stream_tells_how_fast_its_member_is_and_a_broken_one_gives_its_load_back() -> None:
    pool = Pool(Host("a"))
    pool.hosts["a"].add(ScriptedReply(pieces=(b"1", b"2", b"3"), is_event_stream=True))
    reply = await pool.provider.open(make_call())
    async for _ in reply.chunks():
        pool.clock.advance(0.5)
    await reply.close()
    assert pool.provider.speeds._token_ms == {"a": 750.0}

    cut = ScriptedReply(pieces=(b"1",), is_event_stream=True, break_off=UpstreamTimeout("late"))
    pool.hosts["a"].add(cut)
    reply = await pool.provider.open(make_call())
    with pytest.raises(UpstreamTimeout):
        async for _ in reply.chunks():
            pass
    await reply.close()
    assert pool.calls == 0


async def test_members_with_other_weights_than_most_get_nothing() -> None:
    pool = Pool(Host("a"), Host("b", digest="d2"), Host("c"))
    assert await pool.provider.probe() == ""
    assert [member.is_up for member in pool.provider.router.members] == [True, False, True]
    assert (await pool.provider.list_models())[0].digest == "d1"
    for host in pool.hosts.values():
        host.probe_verdict = "it is not ready"
    assert await pool.provider.probe() == "it is not ready"
    assert list(await pool.provider.list_models()) == []


async def test_that_a_member_has_other_weights_is_said_once() -> None:
    pool = Pool(Host("a"), Host("b", digest="d2"), Host("c"))
    with capture_logs() as lines:
        for _ in range(3):
            await pool.provider.probe()
        pool.hosts["b"].models = pool.hosts["a"].models
        await pool.provider.probe()
        pool.hosts["b"].models = (EngineModel("fake-model", "d3"),)
        await pool.provider.probe()
    told = [each["reason"] for each in lines if each["event"] == "pool:member_differs"]
    assert told == ["b", "b"], "once for each time that it came to differ"


async def test_a_member_that_is_down_is_told_by_what_it_has_now_not_by_what_it_served() -> None:
    pool = Pool(Host("a"), Host("b"), Host("c"))
    await pool.provider.probe()
    pool.hosts["a"].probe_verdict = "it is not ready"
    for name in "bc":
        pool.hosts[name].models = (EngineModel("fake-model", "d2"),)
    await pool.provider.probe()
    assert [each.reason for each in pool.provider.seen()] == ["it is not ready", "", ""]


async def test_a_draining_member_gets_nothing_new() -> None:
    pool = Pool(Host("a"), Host("b"))
    under_way = await pool.provider.open(make_call())
    drained = next(each.name for each in pool.provider.router.members if each.calls)
    pool.provider.keep_drained({drained})
    assert pool.provider.draining == {drained: 1}
    for number in range(6):
        await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
    assert len(pool.hosts[drained].calls) == 1
    assert await under_way.read(), "what was under way goes on"
    await under_way.close()
    assert pool.provider.draining == {drained: 0}
    pool.provider.keep_drained(())
    assert pool.provider.draining == {}
    for number in range(6):
        await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
    assert len(pool.hosts[drained].calls) > 1
    assert pool.provider.unavailable_reason == ""
    await pool.provider.close()


async def test_a_member_that_has_no_place_is_passed_over_before_it_did_anything() -> None:
    pool = Pool(Host("a"), Host("b"))
    full = ScriptedReply(status=503, pieces=(b"{}",), retry_after_s=1.0)
    pool.hosts["a"].add(full)
    pool.hosts["b"].add(full)
    reply = await pool.provider.open(make_call())
    assert reply.status == 503, "both have none, and nobody is asked twice"
    assert [len(host.calls) for host in pool.hosts.values()] == [1, 1]
    await reply.close()
    assert pool.calls == 0
    ((_, status),) = pool.provider.passed_over
    assert (status, pool.provider.passed_over.total()) == (503, 1), "the second's is the answer"

    pool.clock.advance(10.0)
    for host in pool.hosts.values():
        host.calls.clear()
    pool.hosts["a"].add(full)
    for number in range(4):
        reply = await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
        assert reply.status == 200
        await reply.close()
    assert len(pool.hosts["a"].calls) + len(pool.hosts["b"].calls) in {4, 5}


@pytest.mark.parametrize("status", [401, 402, 407])
async def test_a_member_that_refuses_its_credential_is_passed_over_and_told(status: int) -> None:
    pool = Pool(Host("a"), Host("b"))
    denied = ScriptedReply(status=status, pieces=(b"{}",))
    for _ in range(40):
        pool.hosts["a"].add(denied)
    with capture_logs() as lines:
        for number in range(8):
            reply = await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
            assert reply.status == 200, "the others serve"
            await reply.close()
    assert len(pool.hosts["a"].calls) == 1, "asked once, and then not before its time"
    told = [each["reason"] for each in lines if each["event"] == "pool:member_denies"]
    assert told == ["a"]
    assert pool.provider.passed_over == {("a", status): 1}
    assert {each.member: bool(each.reason) for each in pool.provider.seen()} == {"a": 1, "b": 0}

    pool.clock.advance(30.0)
    for number in range(8):
        reply = await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
        assert reply.status == 200
        await reply.close()
    assert len(pool.hosts["a"].calls) == 2


async def test_what_every_member_says_of_its_credential_is_told_to_who_asked() -> None:
    pool = Pool(Host("a"), Host("b"))
    for host in pool.hosts.values():
        host.add(ScriptedReply(status=401, pieces=(b"{}",)))
    reply = await pool.provider.open(make_call())
    assert reply.status == 401
    assert [len(host.calls) for host in pool.hosts.values()] == [1, 1]
    await reply.close()
    assert (await pool.provider.open(make_call())).status == 200, "whoever is left is asked"
    pool.provider.renewed("a", pool.hosts["a"])
    pool.provider.renewed("b", pool.hosts["b"])
    assert [each.reason for each in pool.provider.seen()] == ["", ""]


async def test_a_member_that_failed_is_asked_again_where_nobody_else_can_be() -> None:
    pool = Pool(Host("a"), Host("b"))
    pool.hosts["b"].probe_verdict = "it is not ready"
    await pool.provider.probe()
    pool.hosts["a"].add(ScriptedReply(status=500, pieces=(b"{}",)))
    assert [(await pool.provider.open(make_call())).status for _ in range(2)] == [500, 200]


async def test_who_finds_nobody_else_to_ask_says_how_long_he_wants_to_be_waited_for() -> None:
    pool = Pool(Host("short"), Host("long"))
    pool.hosts["short"].models = (EngineModel("fake-model", "d1", 4_096),)
    pool.hosts["long"].models = (EngineModel("fake-model", "d1", 32_768),)
    await pool.provider.probe()
    pool.hosts["long"].add(ScriptedReply(status=503, pieces=(b"{}",), retry_after_s=7.0))
    reply = await pool.provider.open(with_body(b'{"messages":["%b"]}' % (b"x" * 20_000)))
    assert (reply.status, reply.retry_after_s, pool.calls) == (503, 7.0, 1)
    assert await reply.read() == b"{}"
    await reply.close()
    assert (pool.calls, len(pool.hosts["short"].calls)) == (0, 0)


async def test_members_that_are_asked_in_turn_share_the_time_of_the_call() -> None:
    class Late(Host):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            pool.clock.advance(20.0)
            return await super().open(call)

    pool = Pool(Late("a"), Late("b"), Late("c"))
    for host in pool.hosts.values():
        host.add(ScriptedReply(status=503, pieces=(b"{}",)))
    reply = await pool.provider.open(make_call(deadline_s=30.0))
    assert reply.status == 503
    asked = [call.deadline_s for host in pool.hosts.values() for call in host.calls]
    assert sorted(asked) == [10.0, 30.0], "and nobody when it was over"


async def test_what_others_sent_to_a_member_is_heard_from_its_own_figures() -> None:
    pool = Pool(Host("a"), Host("b"))
    pool.hosts["a"].told = Figures(waiting=6.0, running=4.0, cache_use=0.9)
    pool.hosts["b"].told = Figures(waiting=0.0, running=0.0)
    assert await pool.provider.probe() == ""
    busy, idle = pool.provider.router.members
    assert busy.backlog_tokens > 6_000
    assert (busy.cache_use, idle.backlog_tokens) == (0.9, 0.0)
    for number in range(4):
        await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
    assert not pool.hosts["a"].calls

    pool.hosts["a"].told = Figures()
    await pool.provider.probe()
    assert busy.backlog_tokens > 0, "asked every two seconds only"
    pool.clock.advance(2.0)
    pool.hosts["b"].told = Figures(waiting=0.0, running=4.0)
    await pool.provider.probe()
    assert busy.backlog_tokens == 0.0
    assert idle.foreign_tokens == 0.0, "those four are ours"


async def test_members_with_longer_windows_are_kept_for_prompts_that_need_them() -> None:
    pool = Pool(Host("short"), Host("long"))
    pool.hosts["short"].models = (EngineModel("fake-model", "d1", 4_096),)
    pool.hosts["long"].models = (EngineModel("fake-model", "d1", 32_768),)
    assert await pool.provider.probe() == ""
    assert [model.window_tokens for model in await pool.provider.list_models()] == [32_768]
    short, long = b'{"messages":["%b"]}' % (b"x" * 100), b'{"messages":["%b"]}' % (b"x" * 20_000)
    for body, name in ((short, "short"), (long, "long")):
        await (await pool.provider.open(with_body(body))).close()
        assert len(pool.hosts[name].calls) == 1
    pool.hosts["short"].probe_verdict = "it is not ready"
    await pool.provider.probe()
    await (await pool.provider.open(with_body(short))).close()
    assert len(pool.hosts["long"].calls) == 2, "a longer one helps out"
    pool.hosts["short"].probe_verdict, pool.hosts["long"].probe_verdict = "", "it is not ready"
    await pool.provider.probe()
    with pytest.raises(PoolBusy):
        await pool.provider.open(with_body(long))


async def test_members_are_seen_with_their_state_figures_and_rates() -> None:
    pool = Pool(Host("a"), Host("b"))
    assert {member.state for member in pool.provider.seen()} == {"unknown"}
    pool.hosts["a"].told = Figures(
        6.0, 4.0, 0.25, 800.0, 1000.0, 100.0, read_tokens=5000.0, generated_tokens=900.0
    )
    await pool.provider.probe()
    pool.provider.keep_drained({"b"})
    busy, drained = pool.provider.seen()
    assert (busy.provider, busy.member, busy.state) == ("house", "a", "up")
    assert (busy.waiting, busy.running, busy.blocks_used, busy.blocks_total) == (6, 4, 200, 800)
    assert (busy.generated_tokens_per_s, busy.prefix_hit_share) == (None, None)
    assert (drained.state, drained.waiting, drained.figures_age_s) == ("draining", None, None)

    pool.clock.advance(4.0)
    pool.hosts["a"].told = Figures(
        0.0, 1.0, 0.5, 800.0, 3000.0, 1600.0, read_tokens=7000.0, generated_tokens=1100.0
    )
    await pool.provider.probe()
    pool.clock.advance(1.5)
    busy, _ = pool.provider.seen()
    assert (busy.generated_tokens_per_s, busy.read_tokens_per_s) == (50.0, 500.0)
    assert (busy.prefix_hit_share, busy.figures_age_s) == (0.75, 1.5)

    pool.clock.advance(4.0)
    pool.hosts["a"].told = Figures(generated_tokens=7.0)
    await pool.provider.probe()
    assert pool.provider.seen()[0].generated_tokens_per_s is None, "it was started anew"


async def test_a_member_is_seen_down_with_its_reason() -> None:
    pool = Pool(Host("a"), Host("b", digest="d2"), Host("c"))
    await pool.provider.probe()
    first, other, last = pool.provider.seen()
    assert (first.state, other.state, last.state) == ("up", "down", "up")
    assert "other weights" in other.reason
