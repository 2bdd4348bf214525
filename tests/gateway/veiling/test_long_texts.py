"""Long texts are read in steps, and none of them keeps others waiting for their turn."""

import asyncio
import threading

import msgspec
import pytest

from classifiers.adjoining import ScanText
from classifiers.pii.detect import Scan, scan
from classifiers.pii.labels import DataClass
from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.dispatch.long_answers import LONG_BYTES_MAX, LOOKED_AT_BYTES_MAX, LongAnswers
from gateway.errors import UpstreamMalformed
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.types import Candidate, StreamEvent
from gateway.veiling.masking import BEFORE_LENGTH, STEP_LENGTH, WINDOW_LENGTH
from gateway.veiling.output_scan import OutputScan
from tests.gateway.providers.samples import HOME, make_target
from tests.gateway.veiling.test_output_scan import VALUES, WORDS


pytestmark = pytest.mark.anyio

CARD = VALUES["CREDIT_CARD"]
LONG = f"{WORDS}{CARD} {WORDS}" * 400
STEP_MAX = STEP_LENGTH + WINDOW_LENGTH + BEFORE_LENGTH + len(WORDS)
ANSWERS = {
    "alone": {"text": LONG},
    "in blocks": {"content": [{"type": "text", "text": LONG}] * 2},
}


class Watched:
    """A scan that notes how much it is given, and where."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.threads: set[int] = set()

    def __call__(self, text: str) -> Scan:
        self.lengths.append(len(text))
        self.threads.add(threading.get_ident())
        return scan(text)


def scanning(watched: ScanText, least: DataClass | None = DataClass.S3) -> OutputScan:
    return OutputScan(watched, watched, least)


@pytest.mark.parametrize("least", [None, DataClass.S3, DataClass.S2])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_long_text_is_read_in_steps_and_hardly_twice(
    answer: object, least: DataClass | None
) -> None:
    """Where the words of one answer stood in two blocks, all of it was read for each card."""
    watched = Watched()
    output = scanning(watched, least)
    raw = msgspec.json.encode(answer)
    shown = output.unveiled(raw)

    assert max(watched.lengths) <= STEP_MAX
    readings = 1 if least is None else 2  # Counted, and masked.
    readings *= 2 if "content" in str(answer) else 1  # Where a block ends is read in two ways.
    assert sum(watched.lengths) <= 2 * readings * len(raw)
    found = raw.count(CARD.encode())
    assert output.found == {"CREDIT_CARD": found}
    assert shown.count(b"[REDACTED:CREDIT_CARD]") == (0 if least is None else found)


def test_a_key_longer_than_a_step_is_not_shown() -> None:
    body = "QUJD" * STEP_LENGTH
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    shown = scanning(scan).unveiled(msgspec.json.encode({"text": f"{WORDS}{key} {WORDS}"}))
    assert msgspec.json.decode(shown)["text"] == f"{WORDS}[REDACTED:PRIVATE_KEY] {WORDS}"


def test_a_text_that_takes_too_long_is_given_up_in_its_middle() -> None:
    now_s, steps = 0.0, 0

    def slow(text: str) -> Scan:
        nonlocal now_s, steps
        now_s, steps = now_s + 9.0, steps + 1
        return scan(text)

    output = OutputScan(slow, slow, DataClass.S3, now_s=lambda: now_s)
    with pytest.raises(UpstreamMalformed):
        output.unveiled(msgspec.json.encode({"text": LONG}))
    assert steps == 4


class Held:
    """A rewriter whose long answers wait until they may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def unveiled(self, raw: bytes) -> bytes:
        if len(raw) > LONG_BYTES_MAX:
            self.may_go_on.wait()
        return raw

    def lifted(self) -> "Held":
        return self

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        return events


async def test_a_short_answer_does_not_wait_for_a_long_one() -> None:
    answers, held = LongAnswers(), Held()
    dialect = DIALECTS["openai_chat"]
    short = b'{"choices":[{"message":{"content":"%b"}}]}' % (b"~" * LOOKED_AT_BYTES_MAX)
    long = short.replace(b"~", b"~" * (LONG_BYTES_MAX // LOOKED_AT_BYTES_MAX))
    waiting = asyncio.ensure_future(answers.read(dialect, long, held, "hostile"))
    await asyncio.sleep(0)
    try:
        assert (await answers.read(dialect, short, held, "honest")).raw == short
        assert not waiting.done()
    finally:
        held.may_go_on.set()
    assert (await waiting).raw == long


def streaming(watched: ScanText) -> LiveStream:
    target = make_target()
    attempt = RunningAttempt(target, AttemptLog(), TargetHealth(), StoppedClock())
    said = [LONG[: 2 * LOOKED_AT_BYTES_MAX], "The end."]
    chunks = [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in said]
    pieces = [b"data: %b\n\n" % msgspec.json.encode(each) for each in chunks]
    reply = ScriptedUpstreamReply(
        ScriptedProvider("p", HOME), ScriptedReply(pieces=(*pieces, b"data: [DONE]\n\n"))
    )
    decoder = DIALECTS["openai_chat"].stream_decoder()
    candidate = Candidate(target, 9, 1)
    return LiveStream(candidate, "openai_chat", reply, decoder, attempt, scanning(watched))


@pytest.mark.parametrize("flows", [False, True])
async def test_a_long_event_is_looked_at_beside_the_loop_and_comes_in_its_order(
    *, flows: bool
) -> None:
    watched, seen = Watched(), list[StreamEvent]()
    stream = streaming(watched)
    if flows:
        await stream.flow(bool)
        assert not watched.threads
    while events := await stream.next_batch():
        if not seen:
            assert threading.get_ident() not in watched.threads
        seen += events

    text = "".join(delta.text for event in seen for delta in event.deltas if delta.kind == "text")
    assert text.startswith(WORDS)
    assert text.endswith("The end.")
    assert CARD not in text
    assert seen[-1].is_terminal
