"""Content that cannot be read stays home: of every kind, in both dialects, streamed or not."""

import base64
import threading
from collections.abc import Callable

import msgspec
import pytest

from classifiers import inspection as inspection_module
from classifiers.pii import scanner as scanner_module
from classifiers.pii.names.tagger import Tagged, Tagger
from tests.faults.envelopes import STYLES, Caller, Style, ask, only_outcome
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, GPT_TARGET, Upstreams


pytestmark = pytest.mark.anyio

CANARY = "canary-in-a-broken-scanner"
NAMED = "Please write to Ingrid Halvorsen, Storgata 14, 0184 Oslo."


def deep() -> object:
    node: object = "Ingrid Halvorsen"
    for _ in range(60):
        node = [node]
    return node


def nested_json() -> str:
    text = '{"name": "Ingrid \\"Inga\\" Halvorsen"}'
    for _ in range(4):
        text = msgspec.json.encode({"arguments": text}).decode()
    return text


FIELDS: dict[str, Callable[[], dict[str, object]]] = {
    "an unknown part": lambda: {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is in it?"},
                    {"type": "hologram", "hologram": {"data": "UklGRg" * 40}},
                ],
            }
        ]
    },
    "a document too deep": lambda: {"metadata": {"note": deep()}},
    "JSON in JSON in JSON in JSON": lambda: {
        "messages": [{"role": "user", "content": nested_json()}]
    },
    "a huge number": lambda: {"metadata": {"n": 10**90}},
    "a flood of candidates": lambda: {
        "messages": [{"role": "user", "content": "kind: secret data: " * 500}]
    },
}
matrix = pytest.mark.parametrize("stream", [False, True])
both = pytest.mark.parametrize("style", STYLES)
models = pytest.mark.parametrize("model", ["auto", CLAUDE_TARGET, GPT_TARGET])


async def assert_not_outside(
    caller: Caller, upstreams: Upstreams, style: Style, body: dict[str, object]
) -> None:
    """Answered at home or refused; no byte at a managed upstream."""
    reply = await caller.post(style, body)
    assert not any(upstream.calls for upstream in upstreams.managed)
    if reply.status == 200:
        assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
        outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
        assert outcome.data_class == "S4"
    else:
        assert 400 <= reply.status < 500


@both
@matrix
@models
@pytest.mark.parametrize("what", FIELDS)
async def test_what_cannot_be_read_does_not_leave(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool, model: str, what: str
) -> None:
    body = ask(style, model=model, stream=stream, **FIELDS[what]())
    await assert_not_outside(caller, upstreams, style, body)


@both
@matrix
@pytest.mark.parametrize("error", [RuntimeError(CANARY), RecursionError(), MemoryError()])
@pytest.mark.parametrize("stage", ["patterns", "tagger"])
async def test_a_scanner_that_breaks_keeps_everything_home(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    stream: bool,
    error: Exception,
    stage: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise error

    if stage == "patterns":
        monkeypatch.setattr(scanner_module, "look", broken)
    else:
        monkeypatch.setattr(Tagger, "find", broken)
    body = ask(style, model="auto", stream=stream, messages=[{"role": "user", "content": NAMED}])

    await assert_not_outside(caller, upstreams, style, body)

    said = capfd.readouterr()
    assert CANARY not in said.out + said.err


@both
@matrix
async def test_a_scanner_that_hangs_keeps_everything_home(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    stream: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def hanging(*_: object) -> list[Tagged]:
        released.wait(30)
        return []

    monkeypatch.setattr(Tagger, "find", hanging)
    monkeypatch.setattr(caller.gateway.plane._inspector, "_inline_bytes_max", 0)
    # A text of its own: verdicts are remembered.
    messages = [{"role": "user", "content": f"{NAMED} ({style}, {stream})"}]
    body = ask(style, model="auto", stream=stream, messages=messages)
    try:
        await assert_not_outside(caller, upstreams, style, body)
    finally:
        released.set()


@both
@matrix
async def test_what_is_too_long_to_be_read_keeps_everything_home(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    stream: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection_module, "MAX_LENGTH", 20)
    messages = [{"role": "user", "content": "A harmless text of more than twenty characters."}]
    body = ask(style, model="auto", stream=stream, messages=messages)
    await assert_not_outside(caller, upstreams, style, body)


@both
@matrix
async def test_bytes_that_are_no_utf8_are_refused(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool
) -> None:
    body = msgspec.json.encode(ask(style, model="auto", stream=stream)).replace(
        b"Good morning", b"Ingrid \xff\xfe"
    )

    reply = await caller.post(style, body)

    assert reply.status == 400
    assert not any(upstream.calls for upstream in upstreams.managed)


@both
@matrix
async def test_no_name_or_address_is_logged_or_counted_by_value(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    stream: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    body = ask(style, stream=stream, messages=[{"role": "user", "content": NAMED}])

    reply = await caller.post(style, body)

    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert outcome.findings == {"ADDRESS": 1, "PERSON": 1}
    said = capfd.readouterr()
    for value in ("Ingrid", "Halvorsen", "Storgata"):
        assert value not in said.out + said.err + repr(outcome) + str(reply.headers)


PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(80)).decode()
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
PHOTO = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
}


@both
async def test_who_sends_what_nobody_reads_is_told_what_that_was_and_so_is_the_record(
    caller: Caller, style: Style
) -> None:
    seen = {"type": "text", "text": "What is in it?"}
    shown = PICTURE if style == "openai" else PHOTO
    body = ask(style, messages=[{"role": "user", "content": [seen, shown]}])

    reply = await caller.post(style, body)

    # The house's model has no eyes, and all others are outside.
    assert reply.status == 400
    message = reply.tree["error"]["message"]
    assert "It counts as S4 because not all was read: image." in message
    refused = await only_outcome(
        caller.gateway, reply.request_id, "refused", "unsupported_parameter"
    )
    assert refused.detail["unread"] == "image"


async def test_an_intent_says_why_its_request_was_not_read(caller: Caller) -> None:
    reply = await caller.post("openai", ask("openai", metadata={"n": 10**90}))

    assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
    intent, outcome = await caller.gateway.records(reply.request_id)
    assert (intent.stage, intent.detail["unread"]) == ("intent", "huge number")
    assert outcome.detail == {}
