"""Which digest a writer takes, and that readers do not mind."""

from pathlib import Path

import pytest
from msgspec import structs

from gateway.audit import device
from gateway.audit.content_digests import BLAKE2B, SHA256, ContentDigest, faster_digest
from gateway.audit.entries import encode_reference
from gateway.audit.proving.verify import verify_directory
from gateway.audit.segments import SegmentReader, checked_records, segment_path
from gateway.types import Receipt
from tests.gateway.audit.samples import LIMITS, make_log, record, running


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu vme sha_ni avx2\n", SHA256),
        ("processor\t: 0\nFeatures\t: fp asimd aes sha1 sha2 crc32\n", SHA256),
        ("processor\t: 0\nflags\t\t: fpu vme avx2 sha_nix\n", BLAKE2B),
        ("", BLAKE2B),
    ],
)
def test_sha_instructions_decide(tmp_path: Path, text: str, expected: ContentDigest) -> None:
    processors = tmp_path / "cpuinfo"
    processors.write_text(text)
    assert faster_digest(processors) is expected
    assert faster_digest(tmp_path / "nowhere") is BLAKE2B


@pytest.mark.parametrize("digest", [SHA256, BLAKE2B], ids=lambda digest: digest.name)
@pytest.mark.parametrize("content_max_bytes", [8 << 20, 10], ids=["whole", "cut"])
async def test_what_is_written_out_is_what_a_reference_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    digest: ContentDigest,
    content_max_bytes: int,
) -> None:
    monkeypatch.setattr(device, "faster_digest", lambda: digest)
    limits = structs.replace(LIMITS, content_max_bytes=content_max_bytes)
    async with running(tmp_path, limits=limits) as log:
        receipt = await log.append(record(1), b"some words that are sealed")
    folder = tmp_path / log.worker
    with SegmentReader(segment_path(folder, receipt.segment)) as reader:
        (found,) = checked_records(reader.records(), reader.start_chain)
    reference = found.entry.content
    assert reference is not None
    assert getattr(reference, digest.name) == digest.of(found.stored.content or b"")
    assert reference.cut_bytes == (0 if content_max_bytes > 10 else 16)
    assert found.stored.raw.endswith(b'"content":' + encode_reference(reference) + b"}")
    assert verify_directory(tmp_path, expected=[receipt]).ok


async def test_a_log_goes_on_with_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may move to another machine."""
    receipts: list[Receipt] = []
    for digest in (SHA256, BLAKE2B, SHA256):
        monkeypatch.setattr(device, "faster_digest", lambda digest=digest: digest)
        log = make_log(tmp_path)
        await log.start()
        receipts.append(await log.append(record(len(receipts)), b"words"))
        await log.close()
    assert verify_directory(tmp_path, expected=receipts).ok
