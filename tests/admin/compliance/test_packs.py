"""Packs from the browser hold what was asked for, and the offline verifier accepts them."""

import asyncio
import html
import re
import shutil
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from anyio import run_process
from sqlalchemy import update

from admin.screens import DAMAGED
from gateway.audit.proving import offline
from gateway.store.engine import open_database
from gateway.store.evidence.packing import KEPT_US, EvidencePack
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.audit import audit_records
from tests.admin.compliance.archive import converse, deeds, log_keys, person
from tests.admin.listener import Browser, Listener
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/packs"


def today(listener: Listener) -> str:
    return str(datetime.fromtimestamp(listener.clock.utc_us() / 1e6, UTC).date())


async def made(listener: Listener, browser: Browser, **changes: str) -> str:
    """The path of a pack that is not being written any more."""
    day = today(listener)
    form = {"since": day, "until": day, "log": "requests", "recipient": "Auditor & Co"} | changes
    answer, page = await browser.send("POST", AT, form)
    assert answer.status == 303, page
    path = answer.headers["location"]
    for _ in range(600):
        _, text = await browser.send("GET", path.replace("/o/", "/api/organisations/"))
        if msgspec.json.decode(text, type=EvidencePack).state not in ("waiting", "writing"):
            break
        await asyncio.sleep(0.02)
    return path


async def fetched(browser: Browser, path: str, folder: Path) -> Path:
    status, kind, data = await browser.fetch(f"{path}/file")
    assert (status, kind) == (200, "application/zip")
    file = folder / "fetched.zip"
    file.write_bytes(data)
    return file


async def test_where_the_log_cannot_be_read_to_its_end_the_page_says_so(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    day, folder = today(listener), listener.settings.path(listener.settings.audit.directory)
    async with person(listener, "cora") as cora:
        for segment in folder.glob("*/00000001.log"):
            segment.write_bytes(segment.read_bytes()[:200])
        answer, page = await cora.send("GET", f"{AT}/new?since={day}&until={day}")
        assert (answer.status, DAMAGED in html.unescape(page)) == (503, True)


async def test_a_stranger_accepts_the_pack_and_not_one_that_was_touched(
    listener: Listener, tmp_path: Path
) -> None:
    await converse(listener, ["ann", "bob", "eve"])
    await converse(listener, ["old"], days_ago=3)
    async with person(listener, "cora") as cora:
        day = today(listener)
        query = f"since={day}&until={day}&log=requests&recipient=x"
        _, seen = await cora.send("GET", f"{AT}/new?{query}")
        assert "6 records" in seen
        path = await made(listener, cora)
        _, page = await cora.send("GET", path)
        assert "Ready: 6 records" in page
        assert "Auditor &amp; Co" in page
        file = await fetched(cora, path, tmp_path)

    keys = log_keys(listener)
    assert offline.check_pack(file, keys)["records"] == 6
    with zipfile.ZipFile(file) as pack:
        manifest = msgspec.json.decode(pack.read("manifest.json"))
        files = {name: pack.read(name) for name in pack.namelist()}
    assert manifest["recipient"] == "Auditor & Co"
    files["records.jsonl"] = files["records.jsonl"].replace(b"house", b"cloud", 1)
    with zipfile.ZipFile(tmp_path / "touched.zip", "w") as pack:
        for name, data in files.items():
            pack.writestr(name, data)
    with pytest.raises(offline.Wrong, match="changed"):
        offline.check_pack(tmp_path / "touched.zip", keys)
    done = [action for actor, action in await deeds(listener) if actor == "cora"]
    assert [each for each in done if each.startswith("pack")] == ["pack.asked", "pack.fetched"]


async def test_a_page_that_waited_says_how_to_check_the_pack_and_that_works(
    listener: Listener, tmp_path: Path
) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        path = await made(listener, cora)
        _, piece = await cora.send("GET", path, hx_target="div#progress")
        file = await fetched(cora, path, tmp_path)
        _, integrity = await cora.send("GET", "/o/acme/integrity")

    assert "SHA-256" in piece
    assert 'href="/o/acme/integrity#log-keys"' in piece
    (key,) = log_keys(listener)
    assert 'id="log-keys"' in integrity
    assert html.escape(key) in integrity
    (commands,) = re.findall(r"<code>(python3 -m [^<]+)</code>", piece)
    name = commands.split()[4]
    file.rename(tmp_path / name)
    # As on a machine that was just set up: Python has the name that it is installed under.
    (bare := tmp_path / "bin").mkdir()
    (bare / "python3").symlink_to(Path(sys.executable).resolve())

    async def pasted(text: str) -> str:
        typed = html.unescape(text).replace("KEYS", f"{key} {key}")
        ran = await run_process(["/bin/sh", "-ec", typed], cwd=tmp_path, env={"PATH": str(bare)})
        return ran.stdout.decode().splitlines()[-1]

    assert await pasted(commands) == "it holds"
    read_me = (tmp_path / name.removesuffix(".zip") / "README.txt").read_text()
    told = "\n".join(re.findall("^ +(python.+)$", read_me, re.MULTILINE))
    assert len(told.splitlines()) == 2
    assert await pasted(told.replace("PACK.zip", name)) == "it holds"
    find = "^(python3 verify.py pack.zip .+)$"
    (verifier,) = re.findall(find, html.unescape(integrity), re.MULTILINE)
    verifier = verifier.removesuffix("</code></pre>")
    shutil.copy(tmp_path / "pack" / "verify.py", tmp_path)
    assert await pasted(verifier.replace("pack.zip", name)) == "it holds"


async def test_a_pack_holds_the_policies_that_govern_its_log_and_nobody_elses(
    listener: Listener, tmp_path: Path
) -> None:
    """A draft of another organisation's rules is no part of what an auditor of this one gets."""
    await converse(listener, ["ann"])
    database = open_database(listener.settings.database_url)
    store = PolicyStore(database, listener.clock)
    levels = ("", "org:acme", "proj:acme/research/assistant", "org:globex", "ws:globex/acme")
    written = {level: document({"name": f"of {level}", "no_cache": True}) for level in levels}
    for level, policy in written.items():
        await store.draft(level, policy, "ann", "a note")
    await store.keep(named := document({"name": "of the file", "no_cache": True}))
    await store.keep(document({"name": "of no record", "no_cache": True}))
    async with database.writing() as connection:
        change = update(audit_records).where(audit_records.c.organisation == "acme")
        await connection.execute(change.values(policy_digest=named.digest))
    await database.close()
    async with person(listener, "cora") as cora:
        held = []
        for wish in ("on", ""):
            path = await made(listener, cora, policies=wish)
            file = await fetched(cora, path, tmp_path)
            assert offline.check_pack(file, log_keys(listener))["origin"] == "gatewright/acme"
            with zipfile.ZipFile(file) as pack:
                held.append({name for name in pack.namelist() if name.startswith("policies/")})

    own = [named, *(policy for level, policy in written.items() if "globex" not in level)]
    assert held == [{f"policies/{policy.digest}.json" for policy in own}, set()]


async def test_a_period_without_records_says_so_and_a_wrong_one_stays_in_its_form(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        empty = await made(listener, cora, since="2001-01-01", until="2001-01-02")
        _, page = await cora.send("GET", empty)
        assert "there are no such records" in page
        assert (await cora.send("GET", f"{empty}/file"))[0].status == 404
        for wrong in (
            *({"since": "soon"}, {"until": "2001-01-01"}, {"log": "all"}, {"log": "deeds"}),
            *({"since": "0001-01-01"}, {"until": "9999-12-31"}, {"recipient": f"me{'x' * 199}"}),
        ):
            form = {"since": "2026-01-02", "until": "2026-01-03", "recipient": "me"} | wrong
            answer, page = await cora.send("POST", AT, form)
            assert (answer.status, 'role="alert"' in page, "me" in page) == (400, True, True), wrong
        for since_us, until_us in ((-1, 1), (1, 1_800 * 10**15)):
            wish = {"log": "requests", "since_us": since_us, "until_us": until_us, "recipient": ""}
            body = msgspec.json.encode(wish).decode()
            path = "/api/organisations/acme/compliance/packs"
            assert (await cora.send("POST", path, body=body))[0].status == 400
        # Cut to what fits, it would stand in the pack as nobody wrote it.
        answer, page = await cora.send("GET", f"{AT}/new?since=2026-01-02&recipient={'x' * 201}")
        assert answer.status == 400
        assert "Use at most 200 characters" in page
        assert "x" * 201 in page


async def test_the_log_of_operators_is_for_who_may_export_everywhere(
    listener: Listener, tmp_path: Path
) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora", organisation="*") as cora:
        path = await made(listener, cora, log="deeds")
        file = await fetched(cora, path, tmp_path)
        async with person(listener, "dan") as dan:
            assert (await dan.send("GET", f"{path}/file"))[0].status == 404
            assert (await dan.send("GET", path))[0].status == 200

    with zipfile.ZipFile(file) as pack:
        assert b"session.began" in pack.read("records.jsonl")
    assert offline.check_pack(file, log_keys(listener))["first_sequence"] == 1


async def test_a_file_that_is_too_old_goes_though_nobody_asks_for_another(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with Listener(tmp_path, sqlite_url) as listener:
        await converse(listener, ["ann"])
        async with person(listener, "cora") as cora:
            path = await made(listener, cora)
        folder = listener.settings.path(listener.settings.audit.pack_directory)
    file = folder / f"{path.rsplit('/', 1)[1]}.zip"
    assert file.exists()
    later = Listener(tmp_path, sqlite_url)
    later.clock.advance(KEPT_US / 1e6 + 1)
    async with later:
        for _ in range(600):
            if not file.exists():
                break
            await asyncio.sleep(0.02)
    assert not file.exists()


async def test_several_are_made_one_after_the_other_and_old_ones_go(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        paths = await asyncio.gather(*(made(listener, cora, recipient=str(n)) for n in range(4)))
        for path in paths:
            _, page = await cora.send("GET", path)
            assert "Ready: 2 records" in page
        listener.clock.advance(KEPT_US / 1e6 + 1)
        await cora.sign_in_as("cora", "a password for tests only")
        _, page = await cora.send("GET", paths[0])
        late, _ = await cora.send("GET", f"{paths[0]}/file")
        assert ("removed after 30 days" in page, late.status) == (True, 404), "before another one"
        await made(listener, cora)

    folder = listener.settings.path(listener.settings.audit.pack_directory)
    assert not [path for path in paths if (folder / f"{path.rsplit('/', 1)[1]}.zip").exists()]
