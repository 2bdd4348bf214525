"""A request costs what it caused: every way of asking, every moment of failure.

Each upstream call has one truth, told by the fake that served it: it was refused, it was counted
(and how), or it was sent and nobody counted. Budget, outcome and attempts must agree with it.
"""

import asyncio
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec
import pytest
from msgspec import Struct, structs

from admin.traffic.bill import bill_of
from gateway.money.bills import Bill, charged
from gateway.types import Attempt, AuditRecord, Usage
from tests.faults.envelopes import Caller, Style, ask
from tests.faults.patience import wait_for_answers
from tests.faults.test_callers_who_leave import Raw
from tests.faults.test_free_requests import streamed, whole
from tests.gateway.providers.samples import make_target
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, RecordingUpstream


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

LIMIT = 10**9
DOUBTED = "I'm sorry, but I cannot help with that."
LONG = "one two three four five six " * 20
ROUTES = {
    "fallback": "",
    "hedge": "hedge_after_ms = 5",
    "cascade": "cascade_above_percent = 1",
}
FIRST = {"fallback": CLAUDE_TARGET, "hedge": CLAUDE_TARGET, "cascade": CHEAP_CLAUDE_TARGET}
POLICY = 'name = "ways"\nversion = 1\n' + "".join(
    f"""
[[preferences]]
name = "{route}"
route = "{route}"
targets = ["{FIRST[route]}", "{GPT_TARGET}"]
order = ["cheap"]
{more}
"""
    for route, more in ROUTES.items()
)
MORE = """
[limits]
first_byte_s = 0.5
stream_idle_s = 0.5
[policy]
file = "{file}"
"""
Truth = Literal["refused", "counted", "unsaid"]


class Moment(Struct, frozen=True):
    """What an upstream does with a call, and what it will ask for it."""

    answer: Answer
    whole: Truth
    """Of a call for a whole answer, and of one for a stream."""
    streamed: Truth
    tokens: tuple[int, int] = (11, 7)
    """What it counted, where it said so."""


GOOD = Answer(text=DOUBTED)
MOMENTS: dict[str, Moment] = {
    "good": Moment(GOOD, "counted", "counted"),
    "400": Moment(Answer(status=400), "refused", "refused"),
    "429": Moment(Answer(status=429), "refused", "refused"),
    "500": Moment(Answer(status=500), "refused", "refused"),
    "529": Moment(Answer(status=529), "refused", "refused"),
    "an error behind a good status": Moment(
        Answer(body=b'{"error":{"message":"Provider returned error","code":502}}'),
        "refused",
        "refused",
    ),
    "reset before a header": Moment(Answer(fault="reset"), "unsaid", "unsaid"),
    "no header in time": Moment(Answer(fault="hang"), "unsaid", "unsaid"),
    "half a header": Moment(Answer(fault="slow_headers"), "unsaid", "unsaid"),
    "no HTTP": Moment(Answer(fault="bad_head"), "unsaid", "unsaid"),
    "no JSON": Moment(Answer(fault="bad_json"), "unsaid", "unsaid"),
    "silence after the head": Moment(Answer(fault="silent"), "unsaid", "unsaid"),
    "reset in the middle": Moment(Answer(fault="mid_reset", text=LONG), "unsaid", "unsaid"),
    "silence in the middle": Moment(Answer(fault="mid_hang", text=LONG), "unsaid", "unsaid"),
    "closed in the middle": Moment(Answer(fault="cut", text=LONG), "unsaid", "unsaid"),
    "an error in the middle": Moment(Answer(fault="error_event", text=LONG), "counted", "unsaid"),
    "no end after the count": Moment(Answer(fault="truncated"), "unsaid", "counted"),
}
ENDS = ("good", "500", "closed in the middle")
"""What becomes of the second one that is asked."""


@pytest.fixture(scope="module")
async def costing(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, shared_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("costing")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    (folder / "policy.toml").write_text(POLICY)
    more = MORE.format(file=folder / "policy.toml")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    async with RunningGateway(folder, url, shared_upstreams, more=more) as running:
        await running.limit("org:acme", LIMIT)
        wait_for_answers(running, shared_upstreams)
        yield running


@pytest.fixture(scope="module")
async def scoped(costing: RunningGateway) -> dict[str, str]:
    """A key for each way, which may ask nobody else."""
    return {
        route: await costing.issue_key(models={first, GPT_TARGET}) for route, first in FIRST.items()
    }


class Asked:
    """One request: what each target's calls met, and what came of it."""

    def __init__(self, gateway: RunningGateway, upstreams: Upstreams, stream: bool) -> None:
        self.gateway, self.stream = gateway, stream
        self._upstreams = upstreams
        self._met: dict[str, Moment] = {}

    def meets(self, target: str, moment: Moment) -> RecordingUpstream:
        upstream = self._upstreams.openai if target == GPT_TARGET else self._upstreams.anthropic
        upstream.answer(moment.answer)
        self._met[target] = moment
        return upstream

    async def check(self, request_id: str) -> AuditRecord:
        """Its outcome, once everything that says what it cost agrees."""
        records = await self.gateway.records(request_id)
        intent, outcome = records
        assert (intent.stage, outcome.stage) == ("intent", "outcome")
        calls = [*self._upstreams.anthropic.calls, *self._upstreams.openai.calls]
        assert len(outcome.attempts) == len(calls)
        for attempt in outcome.attempts:
            self._check(attempt)
        total = sum(attempt.cost_microusd for attempt in outcome.attempts)
        assert outcome.cost_microusd == total
        assert total <= intent.reserved_microusd
        assert (outcome.usage is None) == (total == 0)
        everything = [each for each in await self.gateway.records() if each.stage == "outcome"]
        left = LIMIT - sum(each.cost_microusd for each in everything)
        async with asyncio.timeout(20):
            while self.gateway.budget_left(("org:acme",)) != left:
                await asyncio.sleep(0.01)
        assert self._counted() == {
            name: sum(each.cost_microusd for each in everything if each.target == name)
            for name in {each.target for each in everything if each.target}
        }
        return outcome

    def _counted(self) -> dict[str, int]:
        """What the worker's own counters have, by target."""
        return {
            sample.labels["target"]: round(sample.value)
            for family in self.gateway.plane.metrics.requests.collect()
            for sample in family.samples
            if sample.name == "gatewright_cost_microusd_total"
        }

    def _check(self, attempt: Attempt) -> None:
        moment = self._met[attempt.target]
        truth = moment.streamed if self.stream else moment.whole
        if truth == "refused":
            assert (attempt.cost_microusd, attempt.estimated) == (0, False), attempt
        elif truth == "unsaid":
            assert attempt.estimated, attempt
            assert attempt.cost_microusd > 0, attempt
        else:
            target = self.gateway.plane.snapshots.current().board.targets[attempt.target]
            exact = Bill(target, Usage(*moment.tokens)).cost_microusd
            assert (attempt.cost_microusd, attempt.estimated) == (exact, False), attempt


@pytest.fixture(autouse=True)
def _well(costing: RunningGateway) -> None:
    """What targets did in earlier tests is forgotten."""
    costing.plane._health.breakers._states.clear()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def asked(request: pytest.FixtureRequest, costing: RunningGateway, upstreams: Upstreams) -> Asked:
    return Asked(costing, upstreams, request.param)


async def sent(asked: Asked, http: aiohttp.ClientSession, key: str, model: str) -> AuditRecord:
    caller = Caller(asked.gateway, http, key)
    reply = await caller.post("openai", ask("openai", model=model, stream=asked.stream))
    return await asked.check(reply.request_id)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
async def test_one_target_that_is_asked_alone(
    asked: Asked, http: aiohttp.ClientSession, scoped: dict[str, str], target: str, moment: str
) -> None:
    asked.meets(target, MOMENTS[moment])
    await sent(asked, http, scoped["hedge"], target)


@pytest.mark.parametrize("moment", ["closed in the middle", "no header in time"])
async def test_what_broke_off_is_estimated_in_the_tier_that_it_was_asked_for(
    asked: Asked, http: aiohttp.ClientSession, scoped: dict[str, str], moment: str
) -> None:
    """Its upstream asks twice as much for that, and did not come to say what it served."""
    caller, costs = Caller(asked.gateway, http, scoped["hedge"]), list[int]()
    price = asked.gateway.plane.snapshots.current().board.targets[GPT_TARGET].price
    for tier, percent in (("default", 100), ("priority", 200)):
        asked.meets(GPT_TARGET, MOMENTS[moment])
        body = ask("openai", model=GPT_TARGET, stream=asked.stream, service_tier=tier)
        reply = await caller.post("openai", body)
        *_, outcome = await asked.gateway.records(reply.request_id)
        costs.append(outcome.cost_microusd)
        # Whoever looks at the request sees parts that add up to it.
        bill = bill_of(outcome, price)
        assert bill is not None
        assert (bill.percent, bill.is_exact) == (percent, True)
        asked.gateway.plane._health.breakers._states.clear()
    assert 2 * costs[0] - 1 <= costs[1] <= 2 * costs[0]
    assert costs[0] > 0


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("route", ["fallback", "cascade"])
async def test_two_targets_of_which_the_second_may_have_to_answer(
    asked: Asked,
    http: aiohttp.ClientSession,
    scoped: dict[str, str],
    route: str,
    moment: str,
    end: str,
) -> None:
    asked.meets(FIRST[route], MOMENTS[moment])
    asked.meets(GPT_TARGET, MOMENTS[end])
    outcome = await sent(asked, http, scoped[route], f"auto:{route}")
    if route == "cascade" and moment == end == "good":
        assert [each.target for each in outcome.attempts] == [CHEAP_CLAUDE_TARGET, GPT_TARGET]


async def test_a_cheap_stream_that_is_too_long_is_paid_though_the_dear_one_fails(
    costing: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    scoped: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.dispatch.cascading.HELD_BYTES_MAX", 200)
    asked = Asked(costing, upstreams, stream=True)
    # Told to close before the end: whether the count has come by then nobody can say.
    endless = Answer(text=LONG, fault="mid_hang")
    asked.meets(CHEAP_CLAUDE_TARGET, Moment(endless, "unsaid", "unsaid"))
    asked.meets(GPT_TARGET, MOMENTS["500"])
    outcome = await sent(asked, http, scoped["cascade"], "auto:cascade")
    assert (outcome.status, outcome.target) == ("failed", CHEAP_CLAUDE_TARGET)
    assert outcome.cost_microusd > 0
    assert outcome.attempts[0].error == "cascaded_away"


@pytest.mark.parametrize("end", MOMENTS)
async def test_two_targets_that_are_asked_at_once(
    asked: Asked, http: aiohttp.ClientSession, scoped: dict[str, str], end: str
) -> None:
    """The first never answers, so that the second is asked too."""
    asked.meets(CLAUDE_TARGET, MOMENTS["no header in time"])
    asked.meets(GPT_TARGET, MOMENTS[end])
    outcome = await sent(asked, http, scoped["hedge"], "auto:hedge")
    assert {each.target for each in outcome.attempts} == {CLAUDE_TARGET, GPT_TARGET}


@pytest.mark.parametrize("end", ["400", "429", "500", "529"])
async def test_a_race_that_one_lost_by_a_refusal_costs_what_the_other_counted(
    asked: Asked, http: aiohttp.ClientSession, scoped: dict[str, str], end: str
) -> None:
    hold = asyncio.Event()
    late = Answer(text=LONG, hold=hold)
    # Nothing of a held stream is content before the hold is over.
    asked.meets(CLAUDE_TARGET, structs.replace(MOMENTS["good"], answer=late))
    other = asked.meets(GPT_TARGET, MOMENTS[end])
    asking = asyncio.create_task(sent(asked, http, scoped["hedge"], "auto:hedge"))
    await other.called()
    under_way = asked.gateway.plane._health._under_way
    while under_way[GPT_TARGET]:
        await asyncio.sleep(0.01)  # Until the refusal is read: then nothing else can win.
    hold.set()
    outcome = await asking
    assert {each.target for each in outcome.attempts} == {CLAUDE_TARGET, GPT_TARGET}


COUNTS = {"missing": None, "negative": (-12, -90), "zero": (0, 0), "text": ("12", "90")}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
async def test_a_count_that_is_none_is_estimated(
    asked: Asked,
    http: aiohttp.ClientSession,
    scoped: dict[str, str],
    target: str,
    counts: object,
) -> None:
    answer = streamed(target, counts) if asked.stream else whole(target, counts)
    asked.meets(target, Moment(answer, "unsaid", "unsaid"))
    await sent(asked, http, scoped["hedge"], target)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_was_never_sent_costs_nothing(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    stream: bool,
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as gateway:
        await gateway.limit("org:acme", LIMIT)
        caller = Caller(gateway, http, await gateway.issue_key())
        await own_upstreams.anthropic.stop()
        reply = await caller.post("openai", ask("openai", model=CLAUDE_TARGET, stream=stream))
        outcome = (await gateway.records(reply.request_id))[-1]
        assert gateway.budget_left(("org:acme",)) == LIMIT
    assert len(outcome.attempts) == 2
    assert {each.cost_microusd for each in outcome.attempts} == {0}
    assert (outcome.status, outcome.cost_microusd, outcome.usage) == ("failed", 0, None)


LEAVING = {
    "before a header": Answer(fault="hang"),
    "after the head": Answer(fault="silent"),
}


@pytest.mark.parametrize("style", ["openai", "anthropic"])
@pytest.mark.parametrize("answer", LEAVING.values(), ids=LEAVING)
async def test_a_caller_who_leaves_pays_what_had_left(
    asked: Asked, http: aiohttp.ClientSession, scoped: dict[str, str], answer: Answer, style: Style
) -> None:
    gateway = asked.gateway
    upstream = asked.meets(CLAUDE_TARGET, Moment(answer, "unsaid", "unsaid"))
    known = {each.request_id for each in await gateway.records()}
    raw = await Raw.connect(gateway)
    caller = Caller(gateway, http, scoped["hedge"])
    body = ask(style, model=CLAUDE_TARGET, stream=asked.stream)
    raw.send(caller, style, msgspec.json.encode(body))
    await upstream.called()
    await raw.hang_up()
    await upstream.aborted()
    async with asyncio.timeout(20):
        while True:
            new = [each for each in await gateway.records() if each.request_id not in known]
            if any(each.stage == "outcome" for each in new):
                break
            await asyncio.sleep(0.01)
    outcome = await asked.check(new[0].request_id)
    assert outcome.status == "cancelled"


def test_operations_says_the_same_of_each_moment() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "operations", "prices.md")
    text = page.read_text(encoding="utf-8")
    section = text.partition("## What a request costs\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|`]+?) \| ([a-z ,]+) \|$", section, re.MULTILINE))
    rows.pop("what happens to a call")
    words = {"refused": "nothing", "counted": "as counted", "unsaid": "estimated"}
    said = {
        name: words[each.streamed]
        if each.whole == each.streamed
        else f"{words[each.streamed]}, {words[each.whole]} where it was not a stream"
        for name, each in MOMENTS.items()
        if name != "an error in the middle"  # There is no such thing in a whole answer.
    }
    said["an error in the middle"] = "estimated"
    more = {
        **dict.fromkeys(("nobody listens", "its caller leaves before it is sent"), "nothing"),
        **dict.fromkeys(("its caller leaves", "another one of a race answers first"), "estimated"),
        "given up, with a count": "as counted",  # test_answers_that_end_in_errors
        "a count that is missing, zero, negative or no number": "estimated",
        "a count that its request cannot have": "estimated",  # test_absurd_counts
    }
    assert rows == said | more


def test_estimates_share_what_exact_bills_leave_of_a_reservation() -> None:
    """Over all mixes of three bills: exact ones in full, estimates never beyond what is left."""
    target = make_target("scripted/a")
    for kinds in itertools.product((None, False, True), repeat=3):
        bills = [
            Bill(target, None if kind is None else Usage(100, 10 * place, estimated=kind))
            for place, kind in enumerate(kinds, 1)
        ]
        exact = sum(bill.cost_microusd for bill in bills if not bill.is_estimated)
        every = sum(bill.cost_microusd for bill in bills)
        for reserved in range(0, every + 2, max(1, every // 7)):
            costs = charged(bills, reserved)
            assert sum(costs) == max(exact, min(every, reserved))
            for bill, each in zip(bills, costs, strict=True):
                assert each == bill.cost_microusd or (bill.is_estimated and each >= 0)
