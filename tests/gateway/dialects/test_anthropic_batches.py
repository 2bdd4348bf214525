"""Requests of a message batch: told apart a part at a time, as if they were read at once."""

import json
from typing import Any

import pytest

from gateway.dialects.resources import anthropic_batches
from gateway.dialects.resources.anthropic_batches import split_requests
from gateway.errors import RequestInvalid


MOST = 100
PART_BYTES = 64


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic_batches, "PART_BYTES", PART_BYTES)


def asked(number: int, **params: Any) -> dict[str, Any]:
    return {"custom_id": f"q-{number}", "params": params}


LISTS: dict[str, list[dict[str, Any]]] = {
    "one": [asked(1)],
    "many": [asked(number) for number in range(MOST)],
    "a long one between short ones": [asked(1), asked(2, text="x" * 500), asked(3), asked(4)],
    "what looks like two in one": [asked(1, of=[asked(at) for at in range(20)]), asked(2)],
    "what looks like two in a text": [asked(1, text=json.dumps([asked(1)] * 9)), asked(2)],
    "a text that ends like one": [asked(1, text='},{"custom_id":'), asked(2, text="}, {")] * 9,
    "its other order": [{"params": {}, "custom_id": str(at)} for at in range(20)],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : "), (",\n\t", ":\r\n")])
def test_requests_come_out_as_they_went_in(name: str, separators: tuple[str, str]) -> None:
    body = json.dumps({"requests": LISTS[name]}, separators=separators).encode()
    raws = split_requests(body, MOST)
    assert [json.loads(raw) for raw in raws] == LISTS[name]
    assert all(raw in body for raw in raws)


def test_only_a_part_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of the process goes on meanwhile: of 62 MiB for 430 ms and more."""
    lengths: list[int] = []

    class Noting:
        decoder = anthropic_batches._SHAPES

        def decode(self, raw: bytes) -> Any:
            lengths.append(len(raw))
            return self.decoder.decode(raw)

    monkeypatch.setattr(anthropic_batches, "_SHAPES", Noting())
    body = json.dumps({"requests": LISTS["many"]}).encode()
    assert len(split_requests(body, MOST)) == MOST
    assert len(body) > 10 * PART_BYTES
    assert max(lengths) <= PART_BYTES + len("[]")


@pytest.mark.parametrize(
    ("between", "place"),
    [
        (b",,", "requests"),
        (b"\x0b,", "requests"),
        (b",\x0c", "requests"),
        (b";", "requests"),
        (b"", "requests"),
        (b",null,", "requests.9"),
        (b',{"custom_id":"q"},', "requests.9"),
    ],
)
def test_what_is_wrong_between_two_is_found_wherever_it_is(between: bytes, place: str) -> None:
    one = b'{"custom_id":"q","params":{}}'
    listed = b",".join([one] * 9) + between + b",".join([one] * 9)
    body = b'{"requests":[%b]}' % listed
    with pytest.raises(RequestInvalid) as raised:
        split_requests(body, MOST)
    assert raised.value.parameter == place


@pytest.mark.parametrize("number", [0, 9, 17])
@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        (rb'"\ud83d"', "half of a surrogate pair"),
        (rb'["\ud83d and more", {"custom_id":"q"}]', "half of a surrogate pair"),
        (rb'[{"custom_id":"q"},{"custom_id":"q","params":{}}],"y":"\ud83d"', None),
        (b"NaN", "is not JSON"),
        (b"1,", "not JSON"),
        (b'"\n"', "not JSON"),
    ],
)
def test_what_is_wrong_in_one_is_found_among_many(
    flaw: bytes, said: str | None, number: int
) -> None:
    """Somebody cut a text in the middle of an emoji, in one request of thousands."""
    listed = [b'{"custom_id":"q","params":{}}'] * 18
    listed[number] = b'{"custom_id":"q","params":{"x":%b}}' % flaw
    with pytest.raises(RequestInvalid, match=said) as raised:
        split_requests(b'{"requests":[%b]}' % b",".join(listed), MOST)
    # What looks like two in one, before the flaw, hides which it is; no other is named.
    assert raised.value.parameter == (f"requests.{number}" if said else "requests")


@pytest.mark.parametrize("listed", ["", " ", ",", "[", "1", '{"custom_id":"q","params":{}},'])
def test_a_list_without_a_request_or_with_an_open_end_is_none(listed: str) -> None:
    with pytest.raises(RequestInvalid):
        split_requests(b'{"requests":[%b]}' % listed.encode(), MOST)


def test_there_are_so_many_and_no_more() -> None:
    body = json.dumps({"requests": LISTS["many"]}).encode()
    with pytest.raises(RequestInvalid, match=f"at most {MOST - 1}"):
        split_requests(body, MOST - 1)
