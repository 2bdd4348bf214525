"""A number in several messages, or in values beside each other, is one number to who reads all."""

import json
import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from classifiers.across import WINDOWS_MAX, edges_in, edges_of, labels_across, windows
from classifiers.extraction import extract
from classifiers.inspection import InspectionResult, in_all, inspect, see
from classifiers.parts import parts_of
from classifiers.pii.detect import find
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from classifiers.verdicts import judge
from tests.classifiers import samples


RNG = random.Random(11)
CARD = samples.with_luhn("4" + samples.digits(RNG, 14))
AADHAAR = samples.aadhaar(RNG)
IBAN = samples.iban(RNG)
GROUPS = [CARD[at : at + 4] for at in range(0, 16, 4)]
FIRST, LAST = " ".join(GROUPS[:2]), " ".join(GROUPS[2:])


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asked(*messages: dict[str, Any]) -> InspectionResult:
    return inspect({"model": "m", "messages": list(messages)})


SPLIT: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "two of a user": ("CREDIT_CARD", [user(f"my card is {FIRST}"), user(LAST)]),
    "an answer between": (
        "CREDIT_CARD",
        [user(f"my card is {FIRST}"), assistant("Go on."), user(f"and then {LAST}, thanks")],
    ),
    "digits alone": ("CREDIT_CARD", [user(FIRST), assistant("Yes?"), user(LAST)]),
    "group by group": ("CREDIT_CARD", [user(group) for group in GROUPS]),
    "within a group": (
        "CREDIT_CARD",
        [user(f"the card: {FIRST} {GROUPS[2][:2]}"), user(f"{GROUPS[2][2:]} {GROUPS[3]}")],
    ),
    "anywhere": ("CREDIT_CARD", [user(f"card {CARD[:6]}"), user(f"{CARD[6:]} until 12/29")]),
    "in parts": ("CREDIT_CARD", [user([{"type": "text", "text": FIRST}]), user(LAST)]),
    "of a model": ("CREDIT_CARD", [assistant(f"card {FIRST}"), user("ok"), assistant(LAST)]),
    "digits of another script": (
        "CREDIT_CARD",
        [user(FIRST), user("".join(chr(0x966 + int(c)) if c.isdigit() else c for c in LAST))],
    ),
    "an Aadhaar": ("IN_AADHAAR", [user(f"my Aadhaar is {AADHAAR[:4]}"), user(AADHAAR[4:])]),
    "an account": (
        "IBAN",
        [user(f"IBAN {samples.grouped(IBAN, ' ')[:14]}"), user(samples.grouped(IBAN, " ")[14:])],
    ),
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_number_is_found_in_the_messages_that_hold_it_together(name: str) -> None:
    label, messages = SPLIT[name]
    result = asked(*messages)
    assert result.counts.get(label) == 1
    assert (result.data_class, result.is_torn) == (DataClass.S3, True)
    assert label not in {finding.label for finding in result.findings}


@pytest.mark.parametrize(
    "messages",
    [
        # A user and a model count each for themselves.
        [user(f"I paid {FIRST}"), assistant(f"{LAST} it is")],
        # Nothing says what they are, and each stands among words.
        [user(f"There were {FIRST}"), user(f"{LAST} people came")],
        [user(f"my card is {FIRST}"), *[user("Wait.")] * 5, user(LAST)],
        [user(f"my card is {FIRST}"), user(f"Of {GROUPS[2]} people {GROUPS[3]} came")],
        [user(f"my card is {FIRST}"), user(f"{LAST[:-1]}{(int(LAST[-1]) + 1) % 10}")],
        [user("From 2021"), user("2022 2023")],
        # Eight digits are many things, and of a row of groups a few are no number.
        [user(CARD[:8]), user(CARD[8:])],
        [user(f"my card is 1111 {FIRST}"), user(LAST)],
        [user("What is 17 * 3?"), assistant("51"), user("And 51 * 9?"), assistant("459")],
        # Scores, counts and years are messages of few digits, too, and one row in ten fits.
        [each for digit in CARD for each in (user("How good is it?"), assistant(digit))],
        [assistant(CARD[at : at + 2]) for at in range(0, 16, 2)],
        [user(AADHAAR[at : at + 4]) for at in range(0, 12, 4)],
        [*map(user, GROUPS), user("1450")],
        [user("12"), *map(user, GROUPS)],
        [user(str(score % 5 + 1)) for score in range(4 * WINDOWS_MAX)],
    ],
)
def test_digits_that_are_no_number_together_are_nothing(messages: list[dict[str, Any]]) -> None:
    result = inspect({"messages": messages})
    assert (result.counts, result.complete) == ({}, True)


SIBLINGS: dict[str, str] = {
    "letters": json.dumps({"a": FIRST, "b": LAST}),
    "counted": json.dumps({"part1": CARD[:8], "part2": CARD[8:]}, indent=2),
    "four": json.dumps({f"g_{at}": group for at, group in enumerate(GROUPS)}),
    "a word": json.dumps({"card_of_payer": FIRST, "more": LAST}),
    "halves": json.dumps({"card_begins": CARD[:6], "and_ends": CARD[6:]}),
    "a list": json.dumps([FIRST, LAST]),
    "a list of groups and the rest": json.dumps([GROUPS[0], f"{GROUPS[1]} {GROUPS[2]}", GROUPS[3]]),
    "lines": f"first: {FIRST}\nrest: {LAST}",
    "a query": f"https://shop.invalid/pay?n1={CARD[:8]}&n2={CARD[8:]}",
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_number_in_values_beside_each_other_is_found(name: str) -> None:
    text = SIBLINGS[name]
    places = [(f.start, f.end) for f in find(text) if f.label == "CREDIT_CARD"]
    assert [
        text[a:b].startswith(CARD[:4]) and text[a:b].endswith(CARD[-4:]) for a, b in places
    ] == [True]
    result = asked(user(f"Please look at {text} and tell me."))
    assert result.counts == {"CREDIT_CARD": 1}
    assert result.is_torn


@pytest.mark.parametrize(
    "arguments",
    [{"a": FIRST, "b": LAST}, {"n1": CARD[:8], "n2": CARD[8:]}, {"rows": [FIRST, LAST]}],
)
def test_so_is_one_among_a_tool_s_arguments(arguments: dict[str, Any]) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": arguments}
    result = asked(assistant([call]))
    assert result.counts["CREDIT_CARD"] == 1
    assert result.is_torn


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"order": FIRST, "invoice": LAST}),
        json.dumps({"start": CARD[:6], "end": CARD[6:]}),
        json.dumps(["7 people", FIRST, LAST]),
        json.dumps({"from": "2024 0101", "to": "2024 0131"}),
        json.dumps({"a": GROUPS[0], "b": GROUPS[1], "c": GROUPS[2]}),
        json.dumps({f"x{at}": int(digit) for at, digit in enumerate(CARD)}),
        f"width={CARD[:8]}\nheight={CARD[8:]}",
    ],
)
def test_values_beside_each_other_under_other_names_are_several(text: str) -> None:
    assert "CREDIT_CARD" not in {finding.label for finding in find(text)}


def test_of_messages_of_digits_no_more_are_tried_than_is_bounded() -> None:
    told = [user("4111 11")] * WINDOWS_MAX
    assert asked(*told).reasons == ("too-many-candidates",)
    edges = [(at, each) for at in range(100) if (each := edges_of("user", "41 1111")) is not None]
    assert len([*windows(edges)]) > 100
    assert all(len(window.places) <= 19 for window in windows(edges))


WORDS = ("my card is ", " until 12/29", "and so on " * 15, " ")
pieces = st.sampled_from([FIRST, LAST, *GROUPS, *WORDS])
ends = st.lists(pieces, min_size=1, max_size=4).map("".join)
between = st.lists(st.sampled_from(GROUPS), max_size=2)


@given(ends, between, ends)
def test_of_a_long_message_only_its_edges_count(first: str, inner: list[str], last: str) -> None:
    said = [first, *inner, last]
    edges = [edges_in(text) for text in said]

    assert max(map(len, edges)) <= 2 * 96
    assert labels_across(edges) == labels_across(said)


def test_edges_of_long_messages_still_make_a_number() -> None:
    said = [f"{'and so on ' * 200} my card is {FIRST}", f"{LAST} {'and so on ' * 200}"]

    assert labels_across([edges_in(text) for text in said]) == ("CREDIT_CARD",)


def part(text: str, kind: str = "text", **more: Any) -> dict[str, Any]:
    return user([{"type": kind, "text": text, **more}])


FORMS: dict[str, Any] = {
    "a text": user,
    "a part": part,
    "a part that is cached": lambda text: part(text, cache_control={"type": "ephemeral"}),
    "one for an hour": lambda text: part(text, cache_control={"type": "ephemeral", "ttl": "1h"}),
    "a message with a name": lambda text: {**user(text), "name": "bob"},
    "an item": lambda text: {"type": "message", **part(text, "input_text")},
    "an item that came back": lambda text: (
        {"id": "msg_a1", "type": "message", "status": "completed"} | part(text, "input_text")
    ),
    "an answer's phase": lambda text: (
        {"type": "message", "phase": "final_2"} | {**part(text, "output_text"), "role": "assistant"}
    ),
    "a field that nobody knows": lambda text: {**user(text), "weight": "v1.2", "rank": 1_000_000},
    "a tool's output": lambda text: (
        {"type": "function_call_output", "call_id": "call_a1", "output": text}
    ),
    "a tool's result": lambda text: user(
        [
            {"type": "tool_result", "tool_use_id": "toolu_a1", "is_error": False}
            | {"content": part(text)["content"]}
        ]
    ),
    "a thought": lambda text: (
        {"role": "assistant", "content": [{"type": "thinking", "thinking": text, "signature": ""}]}
    ),
    "a refusal": lambda text: (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": text}]}
    ),
    "a reasoning": lambda text: (
        {"type": "reasoning", "id": "rs_a1", "summary": [{"type": "summary_text", "text": text}]}
    ),
}


@pytest.mark.parametrize("member", ["messages", "input"])
@pytest.mark.parametrize("name", FORMS)
def test_what_stands_beside_the_words_of_a_message_parts_no_number(name: str, member: str) -> None:
    """How long a prompt is cached has a digit, and a message's own kind has letters."""
    form, between = FORMS[name], {"role": "system", "content": "Well."}
    begun, rest = " ".join(GROUPS[:2]), " ".join(GROUPS[2:])
    for first, last in (
        (f"My card is {begun}", f"{rest}."),
        (begun, f"{rest}, and that is all"),
        (f"It is {begun}", rest),
    ):
        said = {"model": "m", member: [form(first), between, form(last)]}
        assert inspect(said).counts == {"CREDIT_CARD": 1}, (first, last)


def turn(kind: str, **members: Any) -> dict[str, Any]:
    return assistant([{"type": "text", "text": "So."}, {"type": kind, **members}])


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def results(*said: Any) -> dict[str, Any]:
    return user(
        [
            {"type": "tool_result", "tool_use_id": f"toolu_a{at}", "content": text}
            | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
            for at, text in enumerate(said)
        ]
    )


@pytest.mark.parametrize(
    "message",
    [
        results(f"The card is {FIRST}", f"{LAST} until 12/29"),
        results(FIRST, LAST),
        results("Well.", FIRST, [{"type": "text", "text": LAST}]),
        results(*GROUPS),
        results(f"card {FIRST}", "Nothing here.", LAST),
        user([text_part(f"my card is {FIRST}"), *results("Well.")["content"], text_part(LAST)]),
        user([*results(f"card {FIRST}")["content"], *map(text_part, GROUPS[2:])]),
        user([text_part(FIRST), *results(LAST)["content"]]),
        assistant([text_part(f"card {FIRST}"), {"type": "tool_use", "input": {"rest": LAST}}]),
    ],
)
@pytest.mark.parametrize("member", ["messages", "input"])
def test_so_is_one_in_two_blocks_of_one_message(message: dict[str, Any], member: str) -> None:
    document = {"model": "m", member: [user("Go on."), message]}
    result = inspect(document)

    assert (result.counts, result.is_torn) == ({"CREDIT_CARD": 1}, True)
    seen = [see(part, None, lambda unit: judge(unit, PATTERNS_ONLY)) for part in parts_of(document)]
    together = in_all(seen)
    assert together is not None
    assert together.counts == {"CREDIT_CARD": 1}


@pytest.mark.parametrize(
    "message",
    [
        results(f"There were {FIRST}", f"{LAST} people came"),
        results(CARD[:8], CARD[8:]),
        results("From 2021", "2022 2023"),
        results(FIRST, *["Well."] * 5, LAST),
        results("7", "12", "1024"),
        user([text_part(f"There were {FIRST}"), *results(f"{LAST} came")["content"]]),
        results(*CARD),
        results(*GROUPS, "1450"),
        results(*(AADHAAR[at : at + 4] for at in range(0, 12, 4))),
    ],
)
def test_results_of_digits_that_are_no_number_are_nothing(message: dict[str, Any]) -> None:
    assert asked(message).counts == {}


def test_a_card_in_texts_beside_a_result_is_counted_once() -> None:
    parts = [text_part(f"card {FIRST}"), text_part(LAST), *results("4111")["content"]]
    assert asked(user(parts)).counts == {"CREDIT_CARD": 1}


def test_a_card_in_one_result_is_counted_once() -> None:
    assert asked(results(f"card {CARD}", "4111")).counts == {"CREDIT_CARD": 1}


class Walked(tuple[tuple[int, int], ...]):
    """Counts how often somebody goes through it."""

    __slots__ = ()
    times: ClassVar[list[int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.times.append(1)
        return super().__iter__()


def test_no_message_looks_through_the_results_of_all_others() -> None:
    told = extract({"messages": [results("Well.", "So.")] * 50})
    told = structs.replace(told, blocks=Walked(told.blocks))

    assert len([*told.said_in_blocks()]) == 50
    assert len(Walked.times) == 1


def test_results_of_one_message_are_tried_within_bounds_too() -> None:
    assert asked(results(*["4111 11"] * WINDOWS_MAX)).reasons == ("too-many-candidates",)


DOCUMENT = {"type": "text", "media_type": "text/plain", "data": "Well."}
SAYING: dict[str, Any] = {
    "a document's title": lambda text: turn("document", title=text, source=DOCUMENT),
    "what a document is about": lambda text: turn("document", source=DOCUMENT, context=text),
    "a result's title": lambda text: turn("search_result", title=text, content=[]),
    "a quotation": lambda text: turn(
        "text", text="So", citations=[{"type": "u", "cited_text": text}]
    ),
    "what a tool is given": lambda text: turn(
        "tool_use", name="jot", input={"type": "it", "body": text}
    ),
    "an error": lambda text: {"type": "mcp_call", "arguments": "{}", "error": text},
}


@pytest.mark.parametrize("name", SAYING)
def test_words_that_have_a_name_of_their_own_are_no_less_said(name: str) -> None:
    form = SAYING[name]
    said = [form(f"My card is {FIRST}"), user("Well."), form(f"{LAST}.")]

    assert asked(*said).counts["CREDIT_CARD"] == 1


def test_bytes_beside_the_words_of_a_message_have_no_place_that_could_be_replaced() -> None:
    """They stand in a text that is JSON; what is put in the place of a card there is no byte."""
    note = json.dumps({"a\u00e4": [*f"my card is {CARD}".encode()]})
    result = asked({**user("Well."), "note": note})

    assert ("CREDIT_CARD" in result.counts, result.is_torn) == (True, True)
