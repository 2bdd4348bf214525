"""What a crash left without an outcome is found in the last segments, and nothing else is."""

from pathlib import Path

import msgspec
import pytest

from gateway.audit import reckoning
from gateway.audit.reckoning import CRASHED, closing, open_intents
from gateway.audit.segments import segment_path
from tests.gateway.audit.samples import LIMITS, record, running


pytestmark = pytest.mark.anyio
SHORT = msgspec.structs.replace(LIMITS, segment_max_bytes=2000)


async def written(folder: Path, count: int, answered: set[int]) -> int:
    """Intents, and outcomes of some of them, over many segments; the number of the next one."""
    async with running(folder, limits=SHORT) as log:
        for number in range(1, count + 1):
            receipt = await log.append(record(number), b"content")
            if number in answered:
                await log.append(record(number, "outcome", receipt.leaf_hash))
        return log.position[0] + 1


def found(folder: Path, below: int) -> list[str]:
    return sorted(each.record.request_id for each in open_intents(folder / "w0", below))


async def test_only_intents_without_an_outcome_are_open(tmp_path: Path) -> None:
    below = await written(tmp_path, 12, {1, 2, 4, 5, 7, 8, 9, 10, 12})
    assert below > 4
    assert found(tmp_path, below) == ["req_11", "req_3", "req_6"]
    assert found(tmp_path, 1) == []


async def test_a_line_of_a_batch_is_left_to_its_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(msgspec.structs.replace(record(1), detail={"batch": "b", "line": "1"}))
        await log.append(record(2))
        below = log.position[0] + 1
    assert found(tmp_path, below) == ["req_2"]


async def test_a_damaged_segment_hides_no_other(tmp_path: Path) -> None:
    below = await written(tmp_path, 12, set())
    path = segment_path(tmp_path / "w0", below - 2)
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    left = found(tmp_path, below)
    assert {"req_1", "req_12"} <= set(left)
    assert len(left) < 12


async def test_it_looks_back_so_far_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = await written(tmp_path, 12, set())
    monkeypatch.setattr(reckoning, "READ_BYTES_MAX", 1)
    left = found(tmp_path, below)
    assert "req_12" in left
    assert "req_1" not in left


async def test_what_is_closed_costs_what_was_set_aside_and_names_its_intent(
    tmp_path: Path,
) -> None:
    begun = msgspec.structs.replace(record(1), reserved_microusd=77, key_id="k", subject="s")
    async with running(tmp_path) as log:
        receipt = await log.append(begun)
        below = log.position[0] + 1
    (intent,) = open_intents(tmp_path / "w0", below)
    outcome = closing(intent, 5)
    assert (outcome.stage, outcome.status, outcome.error) == ("outcome", "incomplete", CRASHED)
    assert (outcome.cost_microusd, outcome.utc_us) == (77, 5)
    assert (outcome.intent, outcome.request_id) == (receipt.leaf_hash, "req_1")
    assert (outcome.organisation, outcome.key_id, outcome.subject) == ("acme", "k", "s")
