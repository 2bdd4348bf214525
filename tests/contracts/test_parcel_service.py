"""What every `ParcelService` promises, scripted or over a real socket: the same behaviour."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.errors import SovereigntyViolation, UpstreamFailed, UpstreamRefused
from gateway.parcels import (
    Parcel,
    ParcelLine,
    ParcelService,
    VendorResult,
    custom_id_of,
)
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.parcels.post import PAGE
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.providers.registry import build_provider, parcel_service
from gateway.providers.scripted import ScriptedProvider
from gateway.types import DialectName
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio

IN_S = 10.0
LINES = 10
KINDS: dict[str, DialectName] = {"openai": "openai_chat", "anthropic": "anthropic_messages"}


class Stage:
    """A service, a way to make it misbehave, and what its vendor saw."""

    def __init__(
        self,
        service: ParcelService,
        dialect: DialectName,
        misbehave: Callable[[ParcelFaults], None],
        seen: Callable[[], list[str]],
        forgotten: Callable[[], list[str]],
        *,
        has_files: bool = False,
        has_pages: bool = False,
    ) -> None:
        self.service, self.dialect, self.misbehave = service, dialect, misbehave
        self.seen, self.forgotten = seen, forgotten
        self.has_files, self.has_pages = has_files, has_pages


@pytest.fixture(params=["scripted_openai", "scripted_anthropic", "openai", "anthropic"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    kind: str = request.param
    dialect = KINDS[kind.removeprefix("scripted_")]
    if kind.startswith("scripted_"):
        scripted = ScriptedProvider("scripted", HOME, dialect).parcels

        def set_faults(faults: ParcelFaults) -> None:
            scripted.faults = faults

        def handed() -> list[str]:
            taken = scripted.taken.values()
            return [line.custom_id for each in taken for line in each.parcel.lines]

        yield Stage(scripted, dialect, set_faults, handed, lambda: scripted.forgotten)
        return
    async with RecordingUpstream() as upstream:
        egress = Egress()
        config = ProviderConfig(
            name="p", kind=kind, jurisdiction=HOME, base_url=upstream.url, credential=make_secret()
        )
        service = parcel_service(build_provider(config, egress))
        assert service is not None

        def set_vendor_faults(faults: ParcelFaults) -> None:
            upstream.batches.faults = faults

        def lines() -> list[str]:
            return [line["custom_id"] for line in upstream.batches.lines]

        def deleted() -> list[str]:
            return upstream.batches.deleted

        has_files = kind == "openai"
        more = {"has_files": has_files, "has_pages": True}
        yield Stage(service, dialect, set_vendor_faults, lines, deleted, **more)
        await egress.close()


@pytest.fixture
async def vendor() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as upstream:
        yield upstream


@pytest.fixture
async def openai_service(vendor: RecordingUpstream) -> AsyncIterator[ParcelService]:
    egress = Egress()
    config = ProviderConfig(
        name="p", kind="openai", jurisdiction=HOME, base_url=vendor.url, credential=make_secret()
    )
    service = parcel_service(build_provider(config, egress))
    assert service is not None
    yield service
    await egress.close()


def line_of(body: bytes) -> Parcel:
    call = structs.replace(make_call(), dialect="openai_chat", body=body, stream=False)
    return Parcel("gwp-a", 0, (ParcelLine("gwp-a-1", call),))


async def test_no_line_end_of_any_kind_makes_another_request_of_a_part_of_one(
    vendor: RecordingUpstream, openai_service: ParcelService
) -> None:
    inner = {"model": "other", "messages": [{"role": "user", "content": "Hi"}]}
    wire = {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": inner}
    text = "a\u2028b\u2029c\x85d"
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "more": ["HERE"]}
    raw = msgspec.json.encode(body).replace(b'"HERE"', b"\r%b\r" % msgspec.json.encode(wire))

    await openai_service.submit(line_of(raw), IN_S)

    ((_, content),) = vendor.batches.files.values()
    (line,) = content.decode().splitlines()
    assert msgspec.json.decode(line)["body"] == body | {"more": [wire]}


def parcel_of(stage: Stage, count: int = 3, name: str = "gwp-a", **more: Any) -> Parcel:
    body: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "Hi\n"}]}
    raw = msgspec.json.format(msgspec.json.encode(body))  # With line breaks of its own.
    call = structs.replace(make_call(), dialect=stage.dialect, body=raw, stream=False, **more)
    lines = [ParcelLine(custom_id_of(name, at), call) for at in range(1, count + 1)]
    return Parcel(name, 0, tuple(lines))


async def answers(stage: Stage, vendor_id: str) -> list[VendorResult]:
    batch = await stage.service.look(vendor_id, IN_S)
    assert batch.state == "ended"
    return [each async for each in stage.service.results(batch, LINES, IN_S)]


async def test_every_line_of_a_parcel_is_answered(stage: Stage) -> None:
    vendor_id = await stage.service.submit(parcel_of(stage), IN_S)
    found = await answers(stage, vendor_id)
    assert [(each.custom_id, each.kind, each.status) for each in found] == [
        (f"gwp-a-{at}", "answered", 200) for at in (1, 2, 3)
    ]
    assert all("usage" in msgspec.json.decode(each.body) for each in found)


async def test_one_line_that_is_not_cleared_keeps_the_whole_parcel_at_home(stage: Stage) -> None:
    parcel = parcel_of(stage)
    barred = structs.replace(parcel.lines[1].call, clearance=frozenset({"elsewhere"}))
    lines = (parcel.lines[0], structs.replace(parcel.lines[1], call=barred), parcel.lines[2])
    with pytest.raises(SovereigntyViolation):
        await stage.service.submit(structs.replace(parcel, lines=lines), IN_S)
    assert stage.seen() == []


async def test_a_parcel_is_found_whose_answer_never_came(stage: Stage) -> None:
    stage.misbehave(ParcelFaults(hides_submit=True))
    with pytest.raises(UpstreamFailed):
        await stage.service.submit(parcel_of(stage), IN_S)
    found = await stage.service.find("gwp-a", 3, 0, IN_S)
    assert found is not None
    assert len(await answers(stage, found.vendor_id)) == 3


async def test_a_parcel_that_is_not_there_is_not_found(stage: Stage) -> None:
    await stage.service.submit(parcel_of(stage, name="gwp-b"), IN_S)
    assert await stage.service.find("gwp-a", 3, 0, IN_S) is None


async def test_a_refused_parcel_is_refused_with_its_status(stage: Stage) -> None:
    stage.misbehave(ParcelFaults(submit_status=429))
    with pytest.raises(UpstreamRefused) as caught:
        await stage.service.submit(parcel_of(stage), IN_S)
    assert caught.value.upstream_status == 429
    assert stage.seen() == []


@pytest.mark.parametrize("status", [502, 503])
async def test_a_parcel_that_was_taken_and_answered_with_an_error_of_the_vendors_is_whole(
    stage: Stage, status: int
) -> None:
    """Nothing of it is taken back: a batch without the file that it is made of would fail."""
    stage.misbehave(ParcelFaults(made_status=status))
    with pytest.raises(UpstreamFailed):
        await stage.service.submit(parcel_of(stage), IN_S)
    assert stage.forgotten() == []
    found = await stage.service.find("gwp-a", 3, 0, IN_S)
    assert found is not None
    assert len(await answers(stage, found.vendor_id)) == 3


async def test_what_a_vendor_has_no_room_for_leaves_nothing_there(stage: Stage) -> None:
    """As vendors say themselves; an upload beside a batch that is refused goes at once."""
    stage.misbehave(ParcelFaults(made_status=429))
    with pytest.raises(UpstreamRefused) as caught:
        await stage.service.submit(parcel_of(stage), IN_S)
    assert caught.value.upstream_status == 429
    assert len(stage.forgotten()) == stage.has_files


async def test_results_say_what_was_refused_what_was_not_sent_and_what_is_there_twice(
    stage: Stage,
) -> None:
    faults = ParcelFaults(
        refused=frozenset({1}),
        overloaded=frozenset({2}),
        unsent=frozenset({3}),
        lost=frozenset({4}),
        is_reversed=True,
        is_doubled=True,
    )
    stage.misbehave(faults)
    vendor_id = await stage.service.submit(parcel_of(stage, 5), IN_S)
    found = await answers(stage, vendor_id)
    assert len(found) == 8
    kinds = {each.custom_id[-1]: each.kind for each in found}
    assert kinds == {"1": "refused", "2": "refused", "3": "unsent", "5": "answered"}
    statuses = {each.custom_id[-1]: each.status for each in found if each.kind == "refused"}
    assert (statuses["1"], statuses["2"] >= 500) == (400, True)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_refused_line_does_not_tell_its_caller_what_the_vendor_knows_us_by(
    vendor: RecordingUpstream, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As of a refusal that comes at once: vendors and proxies quote the key that they refuse."""
    secret = make_secret()

    def refusal(status: int, name: str = "invalid_request_error") -> dict[str, object]:
        message = f"key {secret.reveal()} is not known ({status})"
        return {"type": "error", "error": {"type": name, "message": message}}

    monkeypatch.setattr("tests.vendor_batches._refusal", refusal)
    vendor.batches.faults = ParcelFaults(refused=frozenset({1}), overloaded=frozenset({2}))
    egress = Egress()
    config = ProviderConfig(
        name="p", kind=kind, jurisdiction=HOME, base_url=vendor.url, credential=secret
    )
    service = parcel_service(build_provider(config, egress))
    assert service is not None
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
    call = structs.replace(make_call(), dialect=KINDS[kind], body=body, stream=False)
    lines = tuple(ParcelLine(f"gwp-a-{at}", call) for at in (1, 2, 3))
    vendor_id = await service.submit(Parcel("gwp-a", 0, lines), IN_S)

    batch = await service.look(vendor_id, IN_S)
    found = [each async for each in service.results(batch, LINES, IN_S)]
    await egress.close()

    told = [each.body for each in found if each.kind == "refused"]
    assert len(told) == 2
    assert all(b"key [removed] is not known" in each for each in told)
    assert not any(secret.reveal().encode() in each.body for each in found)


async def test_a_download_that_is_cut_is_no_end(stage: Stage) -> None:
    vendor_id = await stage.service.submit(parcel_of(stage), IN_S)
    await answers(stage, vendor_id)
    stage.misbehave(ParcelFaults(cut_after=1))
    read: list[str] = []

    async def download() -> None:
        async for each in stage.service.results(batch, LINES, IN_S):
            read.append(each.custom_id)  # noqa: PERF401 - it raises in the middle

    batch = await stage.service.look(vendor_id, IN_S)
    with pytest.raises(UpstreamFailed):
        await download()
    assert read == ["gwp-a-1"]
    assert len(await answers(stage, vendor_id)) == 3


async def test_a_cancelled_batch_ends_and_can_be_cancelled_again(stage: Stage) -> None:
    stage.misbehave(ParcelFaults(is_slow=True))
    vendor_id = await stage.service.submit(parcel_of(stage), IN_S)
    assert (await stage.service.look(vendor_id, IN_S)).state == "under_way"
    await stage.service.cancel(vendor_id, IN_S)
    assert {each.kind for each in await answers(stage, vendor_id)} == {"unsent"}
    await stage.service.cancel(vendor_id, IN_S)


async def test_what_the_vendor_keeps_is_forgotten_and_may_be_gone_before(stage: Stage) -> None:
    vendor_id = await stage.service.submit(parcel_of(stage), IN_S)
    batch = await stage.service.look(vendor_id, IN_S)
    await stage.service.tidy(batch, IN_S)
    assert stage.forgotten()
    await stage.service.tidy(batch, IN_S)


async def others(stage: Stage, count: int) -> None:
    """Parcels that came later than ours; as long as it is, so that none is passed over unread."""
    for at in range(count):
        await stage.service.submit(parcel_of(stage, name=f"gwp-o{at}"), IN_S)


async def test_a_parcel_is_found_behind_pages_of_later_ones(stage: Stage) -> None:
    stage.misbehave(ParcelFaults(hides_submit=True))
    with pytest.raises(UpstreamFailed):
        await stage.service.submit(parcel_of(stage), IN_S)
    await others(stage, PAGE + 5)
    found = await stage.service.find("gwp-a", 3, 0, IN_S)
    assert found is not None
    assert {each.custom_id[:6] for each in await answers(stage, found.vendor_id)} == {"gwp-a-"}


async def test_where_there_is_too_much_to_look_at_nobody_says_that_it_is_not_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.providers.parcels.post.PAGES_MAX", 1)
    await others(stage, PAGE)
    assert await stage.service.find("gwp-a", 3, 0, IN_S) is None
    await others(stage, 1)
    if not stage.has_pages:
        assert await stage.service.find("gwp-a", 3, 0, IN_S) is None
        return
    with pytest.raises(UpstreamFailed, match="too much"):
        await stage.service.find("gwp-a", 3, 0, IN_S)
    # What is older than ours need not be looked at.
    later_us = 2 * round(time.time() * 1e6)
    assert await stage.service.find("gwp-a", 3, later_us, IN_S) is None


async def test_an_upload_without_a_batch_is_found_behind_pages_of_others_and_deleted(
    vendor: RecordingUpstream, openai_service: ParcelService
) -> None:
    vendor.batches.upload("gwp-a.jsonl")
    vendor.batches.upload("gwp-a.jsonl")
    for at in range(2 * PAGE):
        vendor.batches.upload(f"gwp-o{at}.jsonl")
    assert await openai_service.find("gwp-a", 3, 0, IN_S) is None
    assert sorted(vendor.batches.deleted) == ["file-1", "file-2"]


async def test_no_more_uploads_are_looked_at_than_were_made_since(
    vendor: RecordingUpstream, openai_service: ParcelService
) -> None:
    for at in range(3 * PAGE):
        vendor.batches.upload(f"gwp-o{at}.jsonl")
    now_us = vendor.batches.now_s * 1_000_000
    assert await openai_service.find("gwp-a", 3, now_us, IN_S) is None
    assert vendor.batches.pages == 1 + 3  # One of batches, and all of files.
    assert await openai_service.find("gwp-a", 3, 2 * now_us, IN_S) is None
    assert vendor.batches.pages == 4 + 2
