"""What a collector answers is heeded: parts that it rejected, and data that it calls bad."""

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.clock import StoppedClock
from gateway.oversight.otlp_answers import ANSWER_BYTES_MAX
from gateway.oversight.otlp_resource import Source
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.otlp import BEGUN_S, POSTS_MAX, OtlpCollector, SpanSink
from gateway.providers.outlets.pause import PAUSE_S_MAX
from gateway.providers.outlets.webhook import DEADLINE_S, Approach, WebHook
from gateway.secrets.secret import Secret
from gateway.store.evidence.shipping import LEASE_US
from gateway.telemetry import Event
from tests.otlp_receiver import OtlpReceiver, Reply, partly


pytestmark = pytest.mark.anyio

OWN_WORD = "what-a-vendor-knows-us-by"


class World:
    """A sink of spans before a receiver."""

    def __init__(self, receiver: OtlpReceiver) -> None:
        self.receiver = receiver
        self.clock = StoppedClock()
        self.egress = Egress()
        self.lost: Counter[str] = Counter()
        hook = WebHook(
            *("telemetry", receiver.url + "/v1/traces", None, self.egress),
            approach=Approach({"api-key": Secret(OWN_WORD)}),
            answer_bytes_max=ANSWER_BYTES_MAX,
        )
        self.collector = OtlpCollector(hook, "sinks.telemetry", self._count)
        told = Source("w0", "north", "production")
        self.sink = SpanSink(self.collector, {}, told, self.clock)

    def _count(self, name: str, count: int) -> None:
        self.lost[name] += count

    async def deliver(self, *numbers: int, worker: str = "w0") -> bool:
        return await self.sink.deliver([outcome(number, worker) for number in numbers])

    @property
    def taken(self) -> list[int]:
        return [number_of(span) for span in self.receiver.taken]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with OtlpReceiver() as receiver:
        made = World(receiver)
        yield made
        await made.egress.close()


def outcome(number: int, worker: str = "w0") -> dict[str, Any]:
    return {
        "stage": "outcome",
        "request_id": f"req_{number}",
        "utc_us": 1_000_000 + number,
        "endpoint": "/v1/messages",
        "worker": worker,
        "organisation": "acme",
        "sequence": number + 1,
    }


def number_of(span: dict[str, Any]) -> int:
    said = {each["key"]: each["value"] for each in span["attributes"]}
    return int(said["gatewright.request_id"]["stringValue"].removeprefix("req_"))


async def test_what_a_collector_rejected_is_counted_each_time_and_named_once(world: World) -> None:
    words = f"no\x1b[31m\nspans of {OWN_WORD} " + "x" * 500
    answers = (partly("rejectedSpans", "2", words), partly("rejectedSpans", 1, words))
    world.receiver.replies.extend((*answers, Reply(), answers[0]))
    with capture_logs() as lines:
        for number in range(4):
            assert await world.deliver(number, 9 + number)

    assert world.lost == {"sinks.telemetry": 5}
    assert [line["event"] for line in lines] == [Event.OTLP_REJECTED] * 2
    assert lines[0]["component"] == "sinks.telemetry"
    assert lines[0]["count"] == 2
    reason = lines[0]["reason"]
    assert reason.isprintable()
    assert len(reason) <= 200
    assert "spans of [removed]" in reason
    assert OWN_WORD not in json.dumps(lines)
    assert len(world.receiver.posts) == 4, "nothing that was taken comes again"


async def test_no_piece_of_a_secret_is_left_where_its_words_are_cut(world: World) -> None:
    for length in range(180, 200):
        world.receiver.replies.extend(
            (partly("rejectedSpans", 1, "x" * length + OWN_WORD), Reply())
        )
    with capture_logs() as lines:
        for number in range(40):
            assert await world.deliver(number)

    assert len(lines) == 20
    assert not [line for line in lines if OWN_WORD[:2] in line["reason"]]


async def test_of_two_secrets_that_begin_alike_nothing_is_left(world: World) -> None:
    longer = OWN_WORD + "-and-more"
    approach = Approach({"api-key": Secret(OWN_WORD), "x-other": Secret(longer)})
    url = world.receiver.url + "/v1/traces"
    hook = WebHook("telemetry", url, None, world.egress, approach=approach)

    assert hook.without_secrets(f"{longer}, {OWN_WORD}") == "[removed], [removed]"


async def test_nobody_rejects_more_than_it_was_sent(world: World) -> None:
    world.receiver.replies.append(partly("rejectedSpans", "9" * 18, "all of these"))

    assert await world.deliver(*range(7))
    assert world.lost == {"sinks.telemetry": 7}


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (503, False)])
async def test_a_collector_that_compresses_its_answer_has_said_whether_it_took(
    world: World, status: int, is_taken: bool
) -> None:
    bomb = gzip.compress(b" " * 10**7)
    world.receiver.replies.append(Reply(status=status, body=bomb, coding="gzip", retry_after="30"))

    assert await world.deliver(1) == is_taken
    assert world.sink.problem == ("" if is_taken else "it answered with HTTP 503")
    assert not world.lost
    assert await world.deliver(2) == is_taken, "it wants to be left alone"


async def test_a_slow_search_for_what_is_bad_goes_on_where_it_was_cut_short(world: World) -> None:
    """A shipper's turn ends before its lease; whoever came next would begin anew for ever."""

    def is_bad(span: dict[str, Any]) -> bool:
        found = number_of(span) in {0, 317}
        if found:
            world.clock.advance(9)
        return found

    world.receiver.is_bad = is_bad
    turns = []
    while True:
        begun_s = world.clock.monotonic_s()
        is_done = await world.deliver(*range(500))
        turns.append(world.clock.monotonic_s() - begun_s)
        if is_done or len(turns) > 20:
            break
        assert world.sink.problem

    assert is_done
    assert max(turns) <= 36 < LEASE_US / 1_000_000 - DEADLINE_S
    assert world.taken == [number for number in range(500) if number not in {0, 317}]
    assert world.lost == {"sinks.telemetry": 2}
    assert world.sink.problem == ""


async def test_what_was_taken_before_a_collector_went_away_does_not_come_again(
    world: World,
) -> None:
    refusals = [Reply(status=400), Reply(), Reply(status=503)]
    world.receiver.replies.extend(refusals)
    assert not await world.deliver(*range(8))
    assert await world.deliver(*range(12))
    assert world.taken == [*range(12)]

    assert await world.deliver(*range(12)), "as whoever sends it back wants it"
    assert world.taken == [*range(12)] * 2


async def test_what_was_cut_short_and_came_from_another_worker_may_be_had_again(
    world: World,
) -> None:
    world.receiver.replies.extend([Reply(status=400), Reply(), Reply(status=503)])
    assert not await world.deliver(*range(8))

    world.clock.advance(BEGUN_S + 1)
    assert await world.deliver(*range(8))
    assert world.taken == [*range(4), *range(8)]


async def test_a_warning_without_a_loss_is_named_and_not_counted(world: World) -> None:
    world.receiver.replies.append(partly("rejectedSpans", 0, "this field goes away"))
    with capture_logs() as lines:
        assert await world.deliver(1)

    assert not world.lost
    assert [line["reason"] for line in lines] == ["this field goes away"]


async def test_one_bad_span_of_many_is_lost_alone(world: World) -> None:
    world.receiver.is_bad = lambda span: number_of(span) == 317

    with capture_logs() as lines:
        assert await world.deliver(*range(500))

    assert sorted(world.taken) == [number for number in range(500) if number != 317]
    assert world.lost == {"sinks.telemetry": 1}
    (line,) = lines
    assert (line["count"], line["reason"]) == (1, "it answered with HTTP 400")
    assert len(world.receiver.posts) <= POSTS_MAX


async def test_where_all_is_bad_it_is_given_up_after_few_posts(world: World) -> None:
    world.receiver.is_bad = lambda _: True

    assert await world.deliver(*range(500))

    assert world.taken == []
    assert world.lost == {"sinks.telemetry": 500}
    assert len(world.receiver.posts) <= 2 * POSTS_MAX


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503])
async def test_what_may_be_mended_there_is_sent_again(world: World, status: int) -> None:
    world.receiver.replies.append(Reply(status=status))

    assert not await world.deliver(1)
    assert world.sink.problem == f"it answered with HTTP {status}"
    assert await world.deliver(1)

    assert world.taken == [1]
    assert not world.lost


@pytest.mark.parametrize(("said", "wait_s"), [("30", 30.0), ("86400", PAUSE_S_MAX)])
async def test_a_collector_that_wants_to_be_left_alone_is(
    world: World, said: str, wait_s: float
) -> None:
    world.receiver.replies.append(Reply(status=429, retry_after=said))
    assert not await world.deliver(1)
    world.clock.advance(wait_s - 1)
    assert not await world.deliver(1)
    assert len(world.receiver.posts) == 1

    world.clock.advance(1)
    assert await world.deliver(1)
    assert world.taken == [1]


async def test_a_connection_that_is_dropped_takes_nothing(world: World) -> None:
    world.receiver.replies.append(Reply(drops=True))

    assert not await world.deliver(1)
    assert world.sink.problem
    assert await world.deliver(1)


@pytest.mark.parametrize("body", [b"", b"OK", b"\xff\x00", b"[" * 90_000, b" " * 10**6 + b"{}"])
async def test_an_answer_that_says_nothing_does_not_make_it_come_again(
    world: World, body: bytes
) -> None:
    world.receiver.replies.append(Reply(body=body))
    with capture_logs() as lines:
        assert await world.deliver(1)

    assert world.taken == [1]
    assert not world.lost
    assert lines == []


async def test_spans_say_which_worker_s_they_are_and_of_which_installation(world: World) -> None:
    lines = [outcome(1, "w1"), outcome(2, "w2"), outcome(3, "w1")]
    assert await world.sink.deliver(lines)

    (post,) = world.receiver.posts
    assert post.headers["api-key"] == OWN_WORD
    told = {}
    for resource in post.body["resourceSpans"]:
        said = {
            each["key"]: each["value"]["stringValue"] for each in resource["resource"]["attributes"]
        }
        spans = resource["scopeSpans"][0]["spans"]
        told[said.pop("service.instance.id")] = [number_of(span) for span in spans]
        assert said == {
            "service.namespace": "north",
            "service.name": "gatewright",
            "deployment.environment.name": "production",
        }
    assert told == {"w1": [1, 3], "w2": [2]}
