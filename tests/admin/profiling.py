"""Profiles and a drift, as the watch leaves them: for pages that show them."""

import json
import zlib

from msgspec.structs import asdict
from sqlalchemy import insert

from gateway.clock import DAY_US, HOUR_US
from gateway.store.schema.profiles import drifts, profile_cursors, profile_hours
from gateway.store.traffic.drifts import Drift, DriftTable
from tests.admin.listener import Listener


SAID = "prompts over 8,000 tokens: 50% instead of 0%"


def _row(
    organisation: str, hour_us: int, kind: str, scope: str, bins: dict[str, dict[str, int]]
) -> dict[str, object]:
    count = max(sum(each.values()) for each in bins.values())
    place = {"organisation": organisation, "hour_us": hour_us, "kind": kind, "scope": scope}
    return place | {"count": count, "bins": json.dumps(bins)}


async def profiles(
    listener: Listener, scope: str = "auto", *, organisation: str = "acme", **changes: object
) -> Drift:
    """Nine days of one hour each, and one of today in which prompts are longer: an open drift."""
    last_us = listener.clock.utc_us() // HOUR_US * HOUR_US - HOUR_US
    usual = {"tokens": {"1": 150, "2": 50}, "class": {"S0": 160, "S2": 40}}
    longer = {"tokens": {"1": 130, "6": 130}, "class": {"S0": 205, "S2": 55}}
    answers = {"ending": {"well": 195, "upstream_failed": 5}, "tokens": {"3": 195}}
    rows = [
        _row(organisation, last_us - day * DAY_US, kind, name, bins)
        for day in range(1, 10)
        for kind, name, bins in (("prompts", scope, usual), ("answers", scope, answers))
    ]
    rows += [
        _row(organisation, last_us, "prompts", scope, longer),
        _row(organisation, last_us, "answers", scope, answers),
    ]
    fields: dict[str, object] = {"state": "open", "guarantee": "f" * 32, "said": SAID}
    drift = Drift(
        **({  # type: ignore[arg-type]
            "id": f"{zlib.crc32(scope.encode()):012x}",
            "organisation": organisation,
            "kind": "prompts",
            "scope": scope,
            "began_us": last_us,
            "found_us": last_us + HOUR_US,
            "seen_us": last_us + HOUR_US,
        } | fields | changes)
    )  # fmt: skip
    async with listener.database() as database:
        known = await DriftTable(database, listener.clock).of(organisation)
        async with database.writing() as connection:
            await connection.execute(insert(profile_hours), rows)
            await connection.execute(insert(drifts), asdict(drift))
            if not known:
                cursor = {"organisation": organisation, "next_us": last_us + HOUR_US}
                cursor |= {"holder": "", "until_us": 0}
                await connection.execute(insert(profile_cursors), cursor)
    return drift
