"""Retention as officers see it: what the next run destroys, and which audit folder is late."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert

from gateway.clock import DAY_US
from gateway.secrets.credentials import master_key
from gateway.store.evidence.integration import Integration
from gateway.store.retention.reports import RetentionReport, RetentionReports
from gateway.store.schema.custody import audit_folders
from tests.admin.compliance.archive import converse, person
from tests.admin.listener import Listener
from tests.signed_days import sign_on


pytestmark = pytest.mark.anyio
HOLDS = "/o/acme/compliance/holds"


async def test_retention_says_in_numbers_what_the_next_run_destroys(
    tmp_path: Path, sqlite_url: str
) -> None:
    more = '[retention]\ndefault = "brief"\n[retention.classes]\nbrief = 30\n'
    async with Listener(tmp_path, sqlite_url, more) as listener:
        await converse(listener, ["ann", "bob"], days_ago=40)
        await converse(listener, ["ann"], days_ago=1)
        async with person(listener, "cora") as cora:
            _, page = await cora.send("GET", "/o/acme/compliance/retention")
            assert "2 content keys are older than 30 days by this machine's clock" in page
            _, _, raw = await cora.fetch("/api/organisations/acme/compliance/retention")
            told = msgspec.json.decode(raw)
            assert (told["keys"], told["unsure"]) == (0, 2)
            async with listener.database() as database:
                keys = master_key(listener.settings)
                await Integration(listener.settings, database, listener.clock, keys).sign()
                await sign_on(database, "acme", listener.clock.utc_us(), (1, 2))
            _, page = await cora.send("GET", "/o/acme/compliance/retention")
            assert "destroys 2 content keys that are older than 30 days" in page
            await cora.send("POST", HOLDS, {"user": "bob", "reason": "r"})
            _, page = await cora.send("GET", "/o/acme/compliance/retention")
            assert "destroys 1 content key that is older than 30 days; 1 more would go" in page


async def test_retention_lists_audit_folders_by_how_late_they_are(
    tmp_path: Path, sqlite_url: str
) -> None:
    more = '[retention]\nrun = "daily"\ndefault = "brief"\nclasses = { brief = 30 }\n'
    more += '[obligations]\ndefault = ["gdpr"]\n'
    async with Listener(tmp_path, sqlite_url, more) as listener:
        await converse(listener, ["ann"])
        today = listener.clock.utc_us() // DAY_US
        async with listener.database() as database:
            reports = RetentionReports(database)
            async with database.writing() as connection:
                folders = [
                    {
                        "folder": mark,
                        "workers": f'["{mark}"]',
                        "told_by": mark,
                        "told_us": 1,
                        "since_revision": 0,
                    }
                    for mark in ("a" * 16, "b" * 16)
                ]
                await connection.execute(insert(audit_folders), folders)
            for mark, over_day, gone in (("a" * 16, today - 5, 0), ("b" * 16, today + 5, 3)):
                told = RetentionReport(
                    *(mark, "acme", "w", today * DAY_US, 30, 1, 2, 0, over_day, gone),
                    gone_us=today * DAY_US if gone else 0,
                )
                await reports.put(mark, [told])
        async with person(listener, "cora") as cora:
            _, page = await cora.send("GET", "/o/acme/compliance/retention")
            assert "no content is older" not in page, "a folder that is late says otherwise"
            assert "content in another audit folder is 5 days overdue" in page
            assert page.index("a" * 16) < page.index("5 days late") < page.index("b" * 16)
            other = page[page.index("b" * 16) :]
            assert other.index("nothing due") < other.index("3 keys")
            assert "Every worker and admin listener with an audit folder does" in page
            _, _, raw = await cora.fetch("/api/organisations/acme/compliance/retention")
            told = msgspec.json.decode(raw)
            assert told["run"] == "daily"
            # The listener has a folder of its own, and may have looked after it by now.
            two = [each for each in told["folders"] if each["folder"] in ("a" * 16, "b" * 16)]
            late = [each["overdue_s"] // 86_400 for each in two]
            assert (late, [each["gone"] for each in two]) == ([5, 0], [0, 3])
            _, page = await cora.send("GET", "/o/acme/compliance/obligations")
            assert "Content is 5 days overdue for destruction." in page
