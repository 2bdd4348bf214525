"""What a worker states of its machine's clock: the operator's word, and the kernel's beside it."""

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.configuration.settings import AuditSettings
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.worker.timekeeping import (
    NOT_TOLD,
    ClockReading,
    ClockStatements,
    clock_duties,
    kernel_clock,
)


pytestmark = pytest.mark.anyio


async def stated(reading: ClockReading | None) -> dict[str, str]:
    log, clock = MemoryAuditLog(), StoppedClock()
    await log.start()
    await ClockStatements(
        Deeds(log, clock), "w7", "pool.example by chrony", lambda: reading
    ).state()
    (record,) = log.records
    assert (record.organisation, record.actor) == (OPERATORS, "worker:w7")
    assert record.action == "clock.stated"
    return dict(record.detail)


async def test_the_kernels_word_stands_beside_the_operators() -> None:
    said = await stated(ClockReading(is_kept=True, offset_us=-431, error_max_us=1_500))
    assert said["source"] == "pool.example by chrony"
    assert (said["kept"], said["offset_us"], said["error_max_us"]) == ("yes", "-431", "1500")
    assert (await stated(ClockReading(False, 0, 16_000_000)))["kept"] == "no"


async def test_what_the_system_does_not_tell_is_not_made_up() -> None:
    said = await stated(None)
    assert {said["kept"], said["offset_us"], said["error_max_us"]} == {NOT_TOLD}


def test_nothing_is_stated_where_nobody_says_what_the_clock_follows() -> None:
    deeds = Deeds(MemoryAuditLog(), StoppedClock())
    (jumps,) = clock_duties(deeds, AuditSettings(), StoppedClock())
    assert jumps.period_s <= 1
    _, stated = clock_duties(deeds, AuditSettings(clock_source="pool.example"), StoppedClock())
    assert stated.period_s == 3600


def test_the_kernel_of_this_machine_is_asked_and_not_changed() -> None:
    first, second = kernel_clock(), kernel_clock()
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert first.error_max_us >= 0
        assert first.is_kept == second.is_kept
