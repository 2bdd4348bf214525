"""The filter language: what is written is read back, and what cannot be read names its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.oversight.searching import (
    CLASSES,
    FIELDS,
    FILTER_CHARS_MAX,
    ROUTES,
    STATUSES,
    TERMS_MAX,
    VALUE_CHARS_MAX,
    Filter,
    FilterInvalid,
    Term,
    between,
    moment_us,
    number_of,
    parse,
    render,
    timeless,
)


NOW_US = 1_795_000_000_000_000
_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.isprintable)
_TEXT_FIELDS = sorted(name for name, field in FIELDS.items() if field.kind == "text")
_OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">="])
_AMOUNT = st.decimals(0, 999, places=3).map(str)
_VALUES = {
    "money": _AMOUNT,
    "count": st.integers(0, 10**15 - 1).map(str),
    "duration": st.tuples(st.integers(0, 99), st.sampled_from(["us", "ms", "s", "m", "h"])).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
}


def _terms() -> st.SearchStrategy[Term]:
    texts = st.builds(
        Term,
        st.sampled_from(_TEXT_FIELDS),
        st.lists(_TEXT, min_size=1, max_size=3).map(tuple),
        is_negated=st.booleans(),
    )
    compared = st.sampled_from(sorted(n for n, f in FIELDS.items() if f.kind in _VALUES)).flatmap(
        lambda name: st.builds(
            Term, st.just(name), _VALUES[FIELDS[name].kind].map(lambda v: (v,)), _OPERATORS
        )
    )
    chosen = st.sampled_from([("route", ROUTES), ("status", STATUSES), ("class", CLASSES)]).flatmap(
        lambda pair: st.builds(
            Term,
            st.just(pair[0]),
            st.lists(st.sampled_from(pair[1]), min_size=1, max_size=3).map(tuple),
            is_negated=st.booleans(),
        )
    )
    labels = st.sampled_from(["IN_PAN", "EMAIL", "*", "CREDIT*", "NONE"])
    found = st.builds(Term, st.just("pii"), labels.map(lambda label: (label,)))
    moments = st.sampled_from(["24h", "7d", "2026-11-21", "2026-11-21T14:00", "2026-11-21T14:00Z"])
    times = st.builds(
        Term, st.sampled_from(["since", "until"]), moments.map(lambda moment: (moment,))
    )
    return st.one_of(texts, compared, chosen, found, times)


@given(st.lists(_terms(), max_size=8).map(tuple).map(Filter))
def test_a_filter_that_is_written_is_read_as_the_same(found: Filter) -> None:
    assert parse(render(found)) == found


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                [*FIELDS, ":", ",", '"', "\\", "-", ">", "<=", "*", " ", "24h", "0.05", "é", "\0"]
            ),
            max_size=14,
        ).map("".join),
    )
)
def test_any_text_is_a_filter_or_refused_at_a_place_inside_it(text: str) -> None:
    found, refused = _read(text)
    if refused is not None:
        assert 0 <= refused.at <= len(text)
        assert refused.at + refused.length <= len(text) + 1
        assert refused.parameter == "q"
    assert parse(render(found)) == found
    for term in found.terms:
        for value in term.values:
            if term.field in ("since", "until"):
                assert -(2**63) < moment_us(value, NOW_US, "Asia/Kolkata") < 2**63
            elif FIELDS[term.field].kind in _VALUES:
                assert 0 <= number_of(term.field, value) < 2**63


def _read(text: str) -> tuple[Filter, FilterInvalid | None]:
    try:
        return parse(text), None
    except FilterInvalid as error:
        return Filter(), error


def test_the_words_of_a_filter_mean_what_they_say() -> None:
    text = 'model:claude* pii:in_pan,email route:managed cost:>0.05 -status:OK req_01 key:"a b"'
    assert parse(text) == Filter(
        (
            Term("model", ("claude*",)),
            Term("pii", ("IN_PAN", "EMAIL")),
            Term("route", ("managed",)),
            Term("cost", ("0.05",), ">"),
            Term("status", ("ok",), is_negated=True),
            Term("id", ("req_01",)),
            Term("key", ("a b",)),
        )
    )


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("model:x modle:y", "modle"),
        ("route:nowhere", "nowhere"),
        ("cost:>a", "a"),
        ("cost:>1,2", ","),
        ("duration:5", "5"),
        ("since:tomorrow", "tomorrow"),
        ("since:2026-02-30", "2026-02-30"),
        ('key:"open', '"open'),
        ("key:a\x00b", "a\x00b"),
        ("model:" + "x" * (VALUE_CHARS_MAX + 1), "x" * (VALUE_CHARS_MAX + 1)),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, here: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse(text)
    assert text[caught.value.at : caught.value.at + caught.value.length] == here


def test_a_filter_is_bounded() -> None:
    with pytest.raises(FilterInvalid, match="characters"):
        parse("x" * (FILTER_CHARS_MAX + 1))
    with pytest.raises(FilterInvalid, match="terms"):
        parse("x " * (TERMS_MAX + 1))
    with pytest.raises(FilterInvalid, match="fewer"):
        parse("key:" + ",".join("x" * 21))


def test_a_filter_with_all_its_terms_and_length_may_be_looked_at_in_a_span_of_time() -> None:
    moment = "2026-11-21T14:05:00Z"
    many = timeless("-x " * TERMS_MAX + "since:7d")
    assert len(many.terms) == TERMS_MAX
    spanned = between(many, moment, moment)
    assert parse(render(spanned)) == spanned
    with pytest.raises(FilterInvalid, match="terms"):
        parse(f"{render(spanned)} since:{moment}")
    long = " ".join(["x" * (VALUE_CHARS_MAX - 12)] * 5)
    assert parse(render(between(timeless(long[:920]), moment, moment))).terms
    with pytest.raises(FilterInvalid, match="beside its time"):
        timeless(long)


def test_a_moment_is_before_now_or_a_date_of_the_readers_zone() -> None:
    hour_us = 3600 * 10**6
    assert moment_us("2h", NOW_US, "UTC") == NOW_US - 2 * hour_us
    utc = moment_us("2026-11-21", NOW_US, "UTC")
    assert moment_us("2026-11-21", NOW_US, "Asia/Kolkata") == utc - 5.5 * hour_us
    assert moment_us("2026-11-21T14:00Z", NOW_US, "Asia/Kolkata") == utc + 14 * hour_us
    for day, began in (("today", "2026-11-18"), ("yesterday", "2026-11-17")):
        assert moment_us(day, NOW_US, "UTC") == moment_us(began, NOW_US, "UTC")
        # Where the day begins first it is the next one already.
        first = "Pacific/Kiritimati"
        assert moment_us(day, NOW_US, first) - moment_us(began, NOW_US, first) == 24 * hour_us
    assert number_of("cost", "0.05") == 50_000
    assert number_of("duration", "1.5s") == 1_500_000


@pytest.mark.parametrize(
    ("value", "zone"), [("0001-01-01", "Europe/Berlin"), ("9999-12-31T23:59", "Pacific/Pago_Pago")]
)
def test_a_moment_at_an_end_of_the_calendar_is_one_in_every_zone(value: str, zone: str) -> None:
    """A filter is read without a zone, and looked for in the reader's: it broke the list."""
    parse(f"since:{value}")
    assert moment_us(value, 0, zone) == moment_us(value, 0, "UTC")


def test_a_facet_asks_for_its_value_and_again_for_it_no_longer() -> None:
    found = parse("route:managed cost:>1")
    other = found.toggled("route", "in-house")
    assert render(other) == "cost:>1 route:in-house"
    assert render(other.toggled("route", "in-house")) == "cost:>1"
    assert found.has("route", "managed")
    assert not parse("-route:managed").has("route", "managed")
