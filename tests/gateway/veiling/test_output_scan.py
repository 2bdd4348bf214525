"""Answers are read through a window: whatever the cuts, the same is counted and the same masked."""

import random
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.pii.detect import scan
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName, StreamEvent
from gateway.veiling.output_scan import BEFORE_LENGTH, WINDOW_LENGTH, MaskingWindow, OutputScan
from gateway.veiling.rewriting import in_turn
from tests.classifiers import samples
from tests.gateway.veiling.test_veil import veil_of
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer, _anthropic_events, _openai_events


RNG = random.Random(11)
TOKEN = "gw" + "_live_" + samples.token(RNG, 40)
VALUES = {
    "CREDIT_CARD": samples.grouped(samples.card(random.Random(5)), " "),
    "IN_AADHAAR": samples.grouped(samples.aadhaar(RNG), " "),
    "US_SSN": "SSN " + samples.ssn(RNG),
    "IBAN": samples.grouped(samples.iban(RNG), " "),
    "IN_GSTIN": samples.gstin(RNG),
    "UK_NINO": "QQ 12 34 56 C".replace("QQ", "AB"),
    "SECRET": TOKEN,
    "PASSWORD": "my password is " + samples.token(RNG, 9) + "!7",
}
WORDS = "The report about rivers and trains is ready, and the music was good. "
SOURCES = {
    "openai_chat": _openai_events,
    "anthropic_messages": _anthropic_events,
    "openai_responses": openai_response_events,
}
ALL: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")


def sensitive_part(text: str) -> str:
    found = [f for f in scan(text).findings if f.label in VALUES]
    return text[found[0].start : found[0].end]


def in_pieces(text: str, cuts: list[int]) -> Iterator[str]:
    edges = [0, *sorted(cuts), len(text)]
    return (text[a:b] for a, b in pairwise(edges))


def masked_in_pieces(text: str, cuts: list[int], least: DataClass = DataClass.S3) -> str:
    window = MaskingWindow(scan, least)
    shown = ""
    for piece in in_pieces(text, cuts):
        shown += window.feed(piece)
        assert len(window._held) <= WINDOW_LENGTH
        assert len(window._before) <= BEFORE_LENGTH
    return shown + window.flush()


@pytest.mark.parametrize("label", VALUES)
def test_a_value_is_masked_wherever_the_stream_is_cut(label: str) -> None:
    text = f"{WORDS}It is {VALUES[label]} as you know. {WORDS}"
    value = sensitive_part(text)
    whole = MaskingWindow(scan, DataClass.S3).whole(text)
    assert value not in whole
    assert f"[REDACTED:{label}]" in whole
    start = text.index(value)
    for cut in range(start - 2, start + len(value) + 3):
        assert masked_in_pieces(text, [cut]) == whole
    assert masked_in_pieces(text, list(range(1, len(text)))) == whole


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_cuts_give_what_the_whole_text_gives(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*VALUES.values(), WORDS, "No. 12, page 7."])))
    text = " and ".join(said)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=30))
    assert masked_in_pieces(text, cuts) == MaskingWindow(scan, DataClass.S3).whole(text)


def test_plain_words_are_not_held_back() -> None:
    window = MaskingWindow(scan, DataClass.S3)
    shown = "".join(map(window.feed, WORDS))
    assert shown == WORDS


def test_below_s3_names_of_hosts_and_people_are_masked_at_the_window_s_distance() -> None:
    text = f"{WORDS}Write to anna dot berg at kunde dot de, or to anna.berg@kunde.de. {WORDS * 5}"
    shown = masked_in_pieces(text, list(range(1, len(text), 3)), DataClass.S2)
    assert shown.count("[REDACTED:EMAIL]") == 2
    assert "kunde" not in shown


def test_no_line_of_a_private_key_is_shown_however_long_it_is() -> None:
    lines = [samples.token(RNG, 64) for _ in range(60)]
    head, tail = ("-----" + word + " PRIVATE KEY-----" for word in ("BEGIN", "END"))
    text = "\n".join(["Here it is:", head, *lines, tail, "Keep it safe."])
    for step in (1, 7, 500, 10_000):
        shown = masked_in_pieces(text, list(range(step, len(text), step)))
        assert not any(line in shown or line[:20] in shown for line in lines)
        assert shown.startswith("Here it is:\n[REDACTED:PRIVATE_KEY]")
        assert shown.endswith("\nKeep it safe.")
    cut_off = masked_in_pieces(text[:2000], list(range(1, 2000)))
    assert cut_off == "Here it is:\n[REDACTED:PRIVATE_KEY]"


def output_scan(masked_from: DataClass | None = DataClass.S3) -> OutputScan:
    return OutputScan(PATTERNS_ONLY.scan, scan, masked_from)


def events_of(dialect: DialectName, text: str) -> list[StreamEvent]:
    raw = SOURCES[dialect](Answer(text=text), {"model": "m"})
    decoder = DIALECTS[dialect].stream_decoder()
    return [event for data in raw for event in decoder.feed(data)]


def text_of(events: list[StreamEvent]) -> str:
    return "".join(d.text for event in events for d in event.deltas if d.kind == "text")


@pytest.mark.parametrize("dialect", ALL)
def test_a_masked_stream_says_the_same_in_events_and_bytes(dialect: DialectName) -> None:
    text = f"{WORDS}It is {VALUES['CREDIT_CARD']} . {WORDS}"
    value = VALUES["CREDIT_CARD"]
    output = output_scan()
    lift = output.lifted()
    seen = [made for event in events_of(dialect, text) for made in lift.events([event])]
    raw = b"".join(event.raw for event in seen)
    again = DIALECTS[dialect].stream_decoder().feed(raw)
    for said in (text_of(seen), text_of(again)):
        assert value not in said
        assert "[REDACTED:CREDIT_CARD]" in said
    assert value.encode() not in raw
    assert again[-1].is_terminal
    assert output.found == {"CREDIT_CARD": 1}


@pytest.mark.parametrize("dialect", ALL)
def test_counting_changes_no_byte_and_counts_each_finding_once(dialect: DialectName) -> None:
    text = (WORDS * 7 + VALUES["IBAN"] + " " + WORDS * 9 + VALUES["IN_GSTIN"] + " ") * 3
    events = events_of(dialect, text)
    output = output_scan(None)
    lift = output.lifted()
    assert [made for event in events for made in lift.events([event])] == events
    assert output.found == {"IBAN": 3, "IN_GSTIN": 3}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_counts_do_not_depend_on_the_cuts(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*VALUES.values(), WORDS * 4]), max_size=40))
    text = " and ".join(said)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=60))
    window = output_scan(None).window()
    for piece in in_pieces(text, cuts):
        window.feed(piece)
    window.flush()
    whole = output_scan(None).window()
    whole.feed(text)
    whole.flush()
    assert window.counts == whole.counts
    assert sum(whole.counts.values()) >= sum(value in text for value in VALUES.values())


def test_masked_arguments_of_a_tool_are_still_json() -> None:
    card = samples.card(random.Random(5))
    text = f'{{"card": {card}, "note": "card {card}", "n": 3}}'
    window = MaskingWindow(scan, DataClass.S3, in_json=True)
    shown = "".join(map(window.feed, text)) + window.flush()
    mask = "[REDACTED:CREDIT_CARD]"
    assert msgspec.json.decode(shown) == {"card": mask, "note": f"card {mask}", "n": 3}


def test_a_whole_answer_is_masked_in_the_model_s_words_and_nowhere_else() -> None:
    card = VALUES["CREDIT_CARD"]
    tree = {
        "id": TOKEN,
        "choices": [{"message": {"content": card, "tool_calls": [{"id": TOKEN}]}}],
        "content": [{"type": "tool_use", "id": TOKEN, "input": {"to": card}}],
    }
    output = output_scan()
    made = msgspec.json.decode(output.unveiled(msgspec.json.encode(tree)))
    mask = "[REDACTED:CREDIT_CARD]"
    assert made["id"] == TOKEN
    assert made["choices"] == [{"message": {"content": mask, "tool_calls": [{"id": TOKEN}]}}]
    assert made["content"] == [{"type": "tool_use", "id": TOKEN, "input": {"to": mask}}]
    assert output.found == {"CREDIT_CARD": 2}
    assert output.unveiled(b"no json") == b"no json"


def test_what_the_caller_sent_comes_back_and_what_the_model_adds_is_masked() -> None:
    veil = veil_of("openai_chat")
    person = veil.names.replacements["Ingrid Halvorsen"]
    mail = veil.names.replacements["ingrid@corp-mail.no"]
    text = f"I told {person} ( {mail} ) about {VALUES['CREDIT_CARD']} today. {WORDS}"
    both = in_turn(output_scan(DataClass.S2), veil)
    assert both is not None
    lift = both.lifted()
    events = events_of("openai_chat", text)
    said = text_of([made for event in events for made in lift.events([event])])
    assert "Ingrid Halvorsen ( ingrid@corp-mail.no ) about [REDACTED:CREDIT_CARD] today" in said
    raw = msgspec.json.encode({"content": text})
    assert b"Ingrid Halvorsen ( ingrid@corp-mail.no ) about [RED" in both.unveiled(raw)
    assert in_turn(None, None) is None
