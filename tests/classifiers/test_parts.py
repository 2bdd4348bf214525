"""Parts: a request is all of them, and what they contain together is what the request contains."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.extraction import MAX_SEGMENTS, extract, extract_parts
from classifiers.inspection import MAX_LENGTH, Contents, Seen, in_all, inspect, see
from classifiers.parts import Part, newest_asking, parts_of
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from classifiers.units import Unit
from classifiers.verdicts import CLEAN, Verdict, judge
from tests.classifiers import samples
from tests.classifiers.test_extraction import JSON, REQUEST


CANARY = "canary-in-a-part"
IDENTIFIERS = (samples.card, samples.aadhaar, samples.iban, samples.ssn)
SAYINGS = ("hello there", "your SSN?", "my card:", "078051120", "021000021", "routing number", "")


def judged(unit: Unit) -> Verdict:
    return judge(unit, PATTERNS_ONLY)


def seen_in(document: object) -> list[Seen]:
    found: list[Seen] = []
    before: Part | None = None
    for part in parts_of(document):
        seen = see(part, before, judged)
        before = part if seen.length else before
        found.append(seen)
    return found


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Requests of any dialect, with identifiers and what announces them in neighbouring parts."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    said = st.one_of(
        st.sampled_from(SAYINGS),
        st.builds(lambda kind: kind(rng), st.sampled_from(IDENTIFIERS)),
    )
    blocks = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": said}), max_size=2)
    roles = st.sampled_from(["user", "assistant", "system", "tool", "robot"])
    message = st.one_of(
        st.fixed_dictionaries({"role": roles, "content": st.one_of(said, blocks, JSON)}), said, JSON
    )
    members = {
        "model": said,
        "tools": st.one_of(JSON, st.lists(st.fixed_dictionaries({"name": said}), max_size=2)),
        "messages": st.one_of(st.lists(message, max_size=4), JSON),
        "input": st.one_of(st.lists(message, max_size=3), said),
        "prompt": st.one_of(said, st.lists(said, max_size=2)),
        "system": said,
        "metadata": JSON,
    }
    names = draw(st.lists(st.sampled_from(sorted(members)), unique=True))
    return {name: draw(members[name]) for name in names}


def in_its_order(parts: list[Part]) -> list[object]:
    return [part.value for part in parts]


def test_messages_and_tools_stand_alone_and_what_stands_between_stays_together() -> None:
    document = {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}, "there"],
        "user": "u",
        "tools": [{"name": "t"}],
        "top_p": 1,
    }
    assert in_its_order(parts_of(document)) == [
        {"model": "m", "stream": True},
        {"role": "user", "content": "hi"},
        "there",
        {"user": "u"},
        {"tools": [{"name": "t"}]},
        {"top_p": 1},
    ]
    assert parts_of({}) == []
    assert in_its_order(parts_of([1])) == [[1]]


@given(st.one_of(requests(), JSON))
def test_parts_contain_together_what_the_request_contains(document: object) -> None:
    whole = inspect(document)
    assert in_all(seen_in(document)) == Contents(
        whole.data_class,
        whole.found_class,
        whole.complete,
        whole.counts,
        whole.reasons,
        whole.opaque_kinds,
    )


@given(st.one_of(requests(), JSON))
def test_the_newest_question_is_the_one_of_the_whole_request(document: object) -> None:
    parts = parts_of(document)
    at = newest_asking(parts)
    assert extract(document).newest_user_text() == (
        "" if at < 0 else extract_parts((parts[at],)).newest_user_text()
    )


@pytest.mark.parametrize("tolerated", [frozenset[str](), frozenset({"image"})])
def test_what_one_part_hides_makes_the_request_secret(tolerated: frozenset[str]) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    document = {"messages": [{"role": "user", "content": [picture]}, "thanks"]}
    contents = in_all(seen_in(document), tolerated)
    assert contents is not None
    assert contents.complete == bool(tolerated)
    assert contents.data_class is (DataClass.S0 if tolerated else DataClass.S4)
    assert contents.opaque_kinds == ("image",)


def test_parts_that_are_too_much_together_are_not_all_read() -> None:
    half = Seen(CLEAN, (), (), 1, MAX_LENGTH // 2)
    assert in_all([half, half]) is not None
    assert in_all([half, half, Seen(CLEAN, (), (), 1, 1)]) is None


def test_parts_with_too_many_texts_together_are_not_whole() -> None:
    half = Seen(CLEAN, (), (), MAX_SEGMENTS // 2, 10)
    enough, too_many = in_all([half, half]), in_all([half, half, Seen(CLEAN, (), (), 1, 1)])
    assert enough is not None
    assert enough.complete
    assert too_many is not None
    assert too_many.reasons == ("too-many-strings",)
    assert too_many.data_class is DataClass.S4


def test_nothing_of_a_part_shows_in_a_repr_or_in_what_is_kept_of_it() -> None:
    document = {**REQUEST, "messages": [{"role": "user", "content": f"mail {CANARY}@corp.io"}]}
    assert CANARY not in repr(parts_of(document))
    assert CANARY not in repr(seen_in(document))
