"""What a vendor says of batches: lines of any length, none of which holds anybody else up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from gateway.admission.answer_bounds import SHORT_BYTES_MAX, VALUES_MAX
from gateway.errors import UpstreamMalformed, UpstreamRefused
from gateway.parcels import (
    Parcel,
    ParcelLine,
    ParcelService,
    ResultsTooLong,
    VendorBatch,
    VendorResult,
)
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.parcels.anthropic import AnthropicParcels
from gateway.providers.parcels.openai import OpenAIParcels
from gateway.providers.parcels.post import ANSWER_BYTES_MAX, LINES_AT_ONCE, ParcelPost
from tests.gateway.providers.samples import HOME, make_call
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio

PATH = "/told"
WAIT_S = 10.0
LINES = 10
KEYS = b"{%b}" % b",".join(b'"%d":1' % at for at in range(VALUES_MAX + 1))


class Reader:
    """Reads lines, and notes where each was read."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.threads: list[int] = []

    def __call__(self, line: bytes) -> VendorResult:
        self.read.append(len(line))
        self.threads.append(threading.get_ident())
        return VendorResult(line[:8].decode(), "answered", 200, line)


@asynccontextmanager
async def posting(said: bytes) -> AsyncIterator[ParcelPost]:
    """To a vendor that says the same wherever it is asked."""
    egress = Egress()
    async with RecordingUpstream() as upstream:
        upstream.texts[PATH] = said.decode()
        endpoint = parse_endpoint("raw", upstream.url, HOME)
        yield ParcelPost(egress, lambda _, more: egress.route(endpoint, PATH, more))
        await egress.close()


async def told(results: AsyncIterator[VendorResult]) -> list[str | None]:
    """Whose results these are; None at the end where that says that some could not be read."""
    names: list[str | None] = []
    try:
        async for each in results:
            names.append(each.custom_id)  # noqa: PERF401 - it raises at the end
    except UpstreamMalformed:
        names.append(None)
    return names


async def test_a_long_line_is_read_beside_the_loop_and_one_of_too_much_is_left_out() -> None:
    long = b"x" * (SHORT_BYTES_MAX + 1)
    reader = Reader()
    async with posting(b"\n".join([b"first", KEYS, long, b"last"])) as post:
        assert await told(post.results(PATH, reader, LINES, WAIT_S)) == [
            "first",
            "xxxxxxxx",
            "last",
            None,
        ]

    assert reader.read == [5, len(long), 4]
    here = threading.get_ident()
    assert [each == here for each in reader.threads] == [True, False, True]


async def test_others_have_their_turns_between_very_many_lines() -> None:
    reader, most = Reader(), 0
    async with posting(b"short\n" * 10_000) as post:

        async def take() -> None:
            async for _ in post.results(PATH, reader, 10_000, WAIT_S):
                pass

        taking = asyncio.ensure_future(take())
        known = 0
        while not taking.done():
            await asyncio.sleep(0)
            most, known = max(most, len(reader.read) - known), len(reader.read)
        await taking
    assert len(reader.read) == 10_000
    assert most <= LINES_AT_ONCE


@pytest.mark.parametrize(
    ("said", "first"),
    [
        (b"again\n" * 21, 20),
        (b"short\n" * 5 + b"x" * 1000, 5),
        (b"short\n" * 5 + b"\n" * 1000, 5),
    ],
)
async def test_what_goes_on_for_longer_than_results_can_is_read_as_far_as_it_may_be(
    said: bytes, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is told twice at most, and all of them have so many bytes together."""
    monkeypatch.setattr("gateway.providers.parcels.post.RESULT_LINE_BYTES_MAX", 16)
    reader = Reader()
    async with posting(said) as post:
        with pytest.raises(ResultsTooLong):
            async for _ in post.results(PATH, reader, LINES, WAIT_S):
                pass
    assert len(reader.read) <= first


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_that_it_is_too_long_is_told_whatever_else_ails_the_vendor(vendor: str) -> None:
    make, line_of = SERVICES[vendor]
    batch = VendorBatch("b-1", "ended", ("f-1", "f-2"))
    async with posting(b"\n".join([line_of(1)] * 3)) as post:
        found = make(post).results(batch, 1, WAIT_S)
        assert [(await anext(found)).custom_id for _ in range(2)] == ["p-1", "p-1"]
        with pytest.raises(ResultsTooLong):
            [each async for each in found]


def openai_line(number: int, name: object = None) -> bytes:
    answer = {"status_code": 200, "request_id": name, "body": {"id": f"a-{number}"}}
    return msgspec.json.encode({"custom_id": f"p-{number}", "response": answer, "error": None})


def anthropic_line(number: int, name: object = None) -> bytes:
    result = {"type": "succeeded", "message": {"id": name}}
    return msgspec.json.encode({"custom_id": f"p-{number}", "result": result})


def anthropic_error(number: int, name: object = None) -> bytes:
    error = {"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": name}
    return msgspec.json.encode(
        {"custom_id": f"p-{number}", "result": {"type": "errored"} | {"error": error}}
    )


SERVICES: dict[str, tuple[Callable[[ParcelPost], ParcelService], Callable[..., bytes]]] = {
    "openai": (OpenAIParcels, openai_line),
    "anthropic": (AnthropicParcels, anthropic_line),
}
ENDED = VendorBatch("b-1", "ended", ("f-1",))
NO_RESULTS = (
    *(b"<html>", b'{"custom_id": null}', b'{"custom_id":"p-9","res'),
    b'{"custom_id":"p-9","response":{"status_code":0},"result":{"type":"paused"}}',
)


@pytest.mark.parametrize("vendor", SERVICES)
@pytest.mark.parametrize("odd", NO_RESULTS)
async def test_a_line_that_is_no_result_costs_no_other_and_is_told_at_the_end(
    vendor: str, odd: bytes
) -> None:
    make, line_of = SERVICES[vendor]
    lines = [line_of(1), odd, line_of(2), odd]
    async with posting(b"\n".join(lines)) as post:
        assert await told(make(post).results(ENDED, LINES, WAIT_S)) == ["p-1", "p-2", None]
        both = VendorBatch("b-1", "ended", ("f-1", "f-2"))
        twice = ["p-1", "p-2"] * (2 if vendor == "openai" else 1)
        assert await told(make(post).results(both, LINES, WAIT_S)) == [*twice, None]


@pytest.mark.parametrize("vendor", SERVICES)
async def test_a_download_of_which_nothing_can_be_read_is_none(vendor: str) -> None:
    """A page of something on the way says of no line that the vendor never had it."""
    make, _ = SERVICES[vendor]
    async with posting(b"\n".join(NO_RESULTS)) as post:
        assert await told(make(post).results(ENDED, LINES, WAIT_S)) == [None]


@pytest.mark.parametrize(
    ("make", "line_of"),
    [
        (OpenAIParcels, openai_line),
        (AnthropicParcels, anthropic_line),
        (AnthropicParcels, anthropic_error),
    ],
)
async def test_what_the_vendor_calls_a_call_is_kept_where_it_is_a_word(
    make: Callable[[ParcelPost], ParcelService], line_of: Callable[..., bytes]
) -> None:
    """And costs no answer where it is none; a text, or somebody's number, stands in no record."""
    names = ["req_abc-1", None, 7, {"a": [1]}, "two words", "4991 1866 5246", "x" * 65, ""]
    lines = [line_of(number, name) for number, name in enumerate(names, 1)]
    async with posting(b"\n".join(lines)) as post:
        found = [each async for each in make(post).results(ENDED, LINES, WAIT_S)]
    assert [each.custom_id for each in found] == [f"p-{at}" for at in range(1, len(names) + 1)]
    assert [each.upstream_ids for each in found] == [("req_abc-1",), *[()] * (len(names) - 1)]


@pytest.mark.parametrize("said", [b"[%b]" % KEYS, b'"%b"' % (b"a" * ANSWER_BYTES_MAX)])
async def test_an_answer_about_a_batch_that_would_be_read_for_long_is_none(said: bytes) -> None:
    async with posting(said) as post:
        with pytest.raises(UpstreamMalformed):
            await post.get(PATH, WAIT_S)


async def test_a_page_of_usual_length_is_read() -> None:
    page = msgspec.json.encode({"data": [{"id": "batch", "metadata": "m" * 9_000}] * 100})
    async with posting(page) as post:
        assert await post.get(PATH, WAIT_S) == page


@pytest.mark.parametrize(
    ("status", "state"),
    [
        *(("completed", "ended"), ("expired", "ended"), ("cancelled", "ended")),
        *(("validating", "under_way"), ("cancelling", "under_way"), ("failed", "failed")),
        ("a word that we do not know", "under_way"),
    ],
)
async def test_a_batch_stands_as_its_vendor_says(status: str, state: str) -> None:
    said = {"id": "batch_1", "created_at": 1, "status": status, "errors": {"data": [{}]}}
    async with posting(msgspec.json.encode(said)) as post:
        assert (await OpenAIParcels(post).look("batch_1", WAIT_S)).state == state


async def test_an_upload_of_many_lines_is_put_together_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def form(parcel: Parcel, boundary: bytes) -> bytes:
        del boundary
        threads.append(threading.get_ident())
        return parcel.name.encode()

    monkeypatch.setattr("gateway.providers.parcels.openai._form", form)
    parcel = Parcel("gwp-1", 1, (ParcelLine("gwp-1-1", make_call()),))
    async with posting(b"") as post:
        with pytest.raises(UpstreamRefused):  # There is nowhere to put it.
            await OpenAIParcels(post).submit(parcel, WAIT_S)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
