"""Erasure as a case: found by digest, stopped by holds, certified by proofs that still hold."""

import html
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import run_process
from sqlalchemy import insert, update

from gateway.audit.proving import offline
from gateway.cli.audit.custody import opened_custody
from gateway.continuing.kept_answers import KeptAnswer
from gateway.projects import Project
from gateway.secrets.credentials import master_key
from gateway.store.batching.files import FileStore
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.custody.orders import CustodyRefused
from gateway.store.erasure.cases import CLAIM_US, ErasureCases
from gateway.store.erasure.erasing import Erasures
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.kept_holdings import Holding
from gateway.store.evidence.integration import Integration
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.store.retention.keeping import content_keys, destroy
from gateway.store.schema.parcels import parcels
from tests.admin.compliance.archive import SAID, converse, deeds, log_keys, person, subject
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/erasures"
HOLDS = "/o/acme/compliance/holds"
INBOX = "/o/acme/approvals"


async def opened(browser: Browser, **form: str) -> str:
    """The path of a case."""
    given = {"scope": "user", "user": "ann", "law": "gdpr", "ticket": "T-7", "deed": "open"} | form
    answer, page = await browser.send("POST", AT, given)
    assert answer.status == 303, page
    return answer.headers["location"]


async def asked(browser: Browser, one: str, ticket: str = "T-7") -> int:
    """How asking for a case to be carried out is answered."""
    return (await browser.send("POST", f"{one}/ask", {"typed": ticket}))[0].status


async def decided(
    browser: Browser,
    one: str,
    action: str = "approve",
    said: str = "as the ticket says",
    seen: str | None = None,
) -> tuple[int, str]:
    """How a verdict in the inbox is answered, and the page; `seen` is who was seen to ask."""
    form = {"id": one.rpartition("/")[2], "action": action, "reason": said}
    form |= {} if seen is None else {"asked_by": seen}
    answer, page = await browser.send("POST", "/o/acme/approvals/erasures", form)
    return answer.status, page


async def content_of(listener: Listener, request_id: str) -> str:
    """What two people see of a request."""
    at = "/o/acme/compliance/reveals"
    async with person(listener, "rae") as rae, person(listener, "sam") as sam:
        form = {"request_id": request_id, "reason": "w", "ticket": "t", "minutes": "5"}
        answer, _ = await rae.send("POST", at, form)
        await sam.send("POST", f"{answer.headers['location']}/approve")
        return (await rae.send("POST", f"{answer.headers['location']}/content"))[1]


async def test_a_case_of_everybody_is_opened_by_who_says_so_only(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        form = {"scope": "users", "user": "ann", "law": "gdpr", "ticket": "T", "deed": "open"}
        assert (await cora.send("POST", AT, form))[0].status == 400
        api = AT.replace("/o/", "/api/organisations/")
        body = msgspec.json.encode({"ticket": "T", "user": " \t"}).decode()
        assert (await cora.send("POST", api, body=body))[0].status == 400
        _, text = await cora.send("GET", api)
        assert msgspec.json.decode(text) == []
        body = msgspec.json.encode({"ticket": "T"}).decode()
        assert (await cora.send("POST", api, body=body))[0].status == 201


async def test_what_is_erased_is_gone_and_the_proofs_hold(listener: Listener) -> None:
    ann, bob = await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        form = {"scope": "user", "user": "ann", "deed": "search", "law": "gdpr", "ticket": ""}
        _, found = await cora.send("POST", AT, form)
        assert "1 key would be destroyed" in found
        assert "content of 1 record." in found
        one = await opened(cora)
        _, page = await cora.send("GET", one)
        assert re.search(r"due in (29|30|31) days\.", page)
        assert "Nothing is destroyed until another person approves it: anton may" in page
        unsure, page = await cora.send("POST", f"{one}/ask", {"typed": "T-8"})
        assert (unsure.status, "Type the ticket" in page) == (400, True)
        assert await asked(cora, one) == 303
        assert (await decided(cora, one))[0] == 409, "it is her own"
        assert f"{SAID}ann" in await content_of(listener, ann)
        status, page = await decided(anton, one)
        assert status == 303, page
        _, page = await cora.send("GET", one)
        assert "anton, " in page
        assert "1 key destroyed" in page
        assert "none can be read, and all are still proved" in page
        assert await asked(cora, one) == 409
        assert (await decided(anton, one))[0] == 409
        _, text = await cora.send("GET", f"{one}/certificate")

    certificate = msgspec.json.decode(text)
    assert certificate["contents_unreadable"] == certificate["proofs_hold"] == 1
    proof = certificate["proofs"][0]
    assert ann in proof["record"]
    offline.check_proof(proof, log_keys(listener))
    proof["record"] = proof["record"].replace("house", "cloud")
    with pytest.raises(offline.Wrong):
        offline.check_proof(proof, log_keys(listener))
    assert f"{SAID}ann" not in await content_of(listener, ann)
    assert f"{SAID}bob" in await content_of(listener, bob)
    assert (certificate["asked_by"], certificate["erased_by"]) == ("cora", "anton")
    done = [each for each in await deeds(listener) if each[0] in ("cora", "anton")]
    assert [
        each for each in done if each[1].split(".")[0] in ("subject", "erasure", "content")
    ] == [
        ("cora", "subject.searched"),
        ("cora", "erasure.opened"),
        ("cora", "erasure.asked"),
        ("anton", "content.erased"),
    ]


async def test_a_hold_goes_before_an_erasure_and_is_released_by_two(listener: Listener) -> None:
    (ann,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        form = {"user": "ann", "reason": "a lawsuit, Az. 3 O 12/26"}
        assert (await cora.send("POST", HOLDS, form))[0].status == 303
        one = await opened(cora)
        _, page = await cora.send("GET", one)
        assert "prevents it" in page
        refused, page = await cora.send("POST", f"{one}/ask", {"typed": "T-7"})
        assert (refused.status, "forbids it: a lawsuit, Az. 3 O 12/26." in page) == (409, True)
        _, page = await cora.send("GET", HOLDS)
        release = re.search(rf'action="({HOLDS}/[0-9a-f]+/release)', page)
        assert release is not None
        await cora.send("POST", release[1])
        alone, _ = await cora.send("POST", release[1])
        keep = release[1].replace("/release", "/keep")
        silent, page = await dan.send("POST", keep)
        assert (silent.status, "Say why: it stands in the record." in page) == (409, True)
        kept, _ = await dan.send("POST", keep, {"comment": "the case goes on"})
        await cora.send("POST", release[1])
        assert (alone.status, kept.status) == (409, 303)
        assert (await dan.send("POST", release[1]))[0].status == 303
        assert await asked(cora, one) == 303
        assert (await decided(dan, one))[0] == 303

    assert f"{SAID}ann" not in await content_of(listener, ann)


async def test_two_who_each_ask_for_a_release_release_nothing(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        for user, scope in (
            *(("", "user"), (" ", "user"), ("\u3000", "user")),
            *(("ann", "organisation"), ("", ""), ("ann", "everybody")),
        ):
            form = {"user": user, "scope": scope, "reason": "a lawsuit"}
            answer, page = await cora.send("POST", HOLDS, form)
            assert (answer.status, "Enter an end user" in page) == (400, True), "not everybody's"
            assert re.search(r'name="user"[^>]* aria-invalid="true"', page)
        assert "No holds in force" in (await cora.send("GET", HOLDS))[1]
        form = {"scope": "organisation", "reason": "a lawsuit"}
        assert (await cora.send("POST", HOLDS, form))[0].status == 303
        for each in (cora, dan):
            _, page = await each.send("GET", HOLDS)
            assert "all of acme" in page
            assert (await each.send("POST", *release_form(page)[0]))[0].status == 303
        await cora.send("POST", HOLDS, {"user": "ann", "reason": "a lawsuit"})
        asking, deed = release_form((await cora.send("GET", HOLDS))[1])
        assert deed == "Request release"
        assert (await cora.send("POST", *asking))[0].status == 303
        answer, page = await dan.send("POST", *asking)
        assert (answer.status, "Cora asked for its release meanwhile" in page) == (409, True)
        api = asking[0].replace("/o/", "/api/organisations/").partition("?")[0]
        answer, said = await dan.send("POST", api, body='{"asked_by": ""}')
        assert (answer.status, "Cora asked" in said) == (409, True)
        releasing, deed = release_form(page)
        assert deed == "Release for good"
        await cora.send("POST", asking[0].replace("/release", "/keep"))
        answer, page = await dan.send("POST", *releasing)
        assert (answer.status, "Nobody asks for its release any more" in page) == (409, True)
        assert (await cora.send("POST", *asking))[0].status == 303
        assert (await dan.send("POST", *releasing))[0].status == 303
        assert "No holds in force" in (await dan.send("GET", HOLDS))[1]


def release_form(page: str) -> tuple[tuple[str, dict[str, str]], str]:
    """Where the form of a page's one release goes and with what, and what its button says."""
    found = re.search(rf'action="({HOLDS}/[0-9a-f]+/release)[^>]*>(.*?)<button[^>]*>(.*?)<', page)
    assert found is not None
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', found[2])
    return (found[1], dict(fields)), found[3]


async def test_a_case_keeps_its_clock_and_no_name(listener: Listener) -> None:
    await converse(listener, ["ann@example.com"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await opened(cora, user="ann@example.com", law="dpdp")
        withdrawn = await opened(cora, ticket="T-9")
        await cora.send("POST", f"{withdrawn}/withdraw")
        assert await asked(cora, withdrawn, "T-9") == 409
        assert await asked(cora, one) == 303
        early, page = await decided(dan, one)
        assert (early, "notice of the erasure still runs" in page.lower()) == (409, True)
        assert "The notice period runs for 48 hours more" in page
        listener.clock.advance(49 * 3600)
        await cora.sign_in_as("cora", "a password for tests only")
        _, page = await cora.send("GET", one)
        assert "Open, and due in" in page
        assert "Requested by cora; a second person decides" in page
        listener.clock.advance(89 * 86_400)
        await cora.sign_in_as("cora", "a password for tests only")
        _, home = await cora.send("GET", "/o/acme/compliance")
        assert "1 erasure case is past the legal deadline" in home
        _, page = await cora.send("GET", one)
        assert "late since" in page
        assert subject(listener, "ann@example.com") in page
        assert "ann@example.com" not in page + home
        for wrong in ({"law": "x"}, {"ticket": " "}, {"user": ""}):
            given = {"scope": "user", "user": "u", "law": "gdpr", "ticket": "T", "deed": "open"}
            answer, page = await cora.send("POST", AT, given | wrong)
            assert (answer.status, 'role="alert"' in page) == (400, True)


async def test_a_case_shows_what_vendors_hold_of_it_until_they_have_deleted_it(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    async with (
        listener.database() as database,
        person(listener, "cora") as cora,
        person(listener, "dan") as dan,
    ):
        copies = VendorCopies(database, listener.clock)
        one = await opened(cora)
        case = one.rpartition("/")[2]
        async with database.writing() as connection:
            await connection.execute(
                insert(parcels).values(
                    id="gwp-1",
                    batch_id="batch_1",
                    provider="open & shut",
                    state="submitted",
                    vendor_id="batch_v1",
                    lines=2,
                    made_us=0,
                    due_us=0,
                    tries=0,
                    tender="",
                    tended_until_us=0,
                )
            )
            await copies.order(connection, case, "acme", "batch_1", frozenset())
        assert await asked(cora, one) == 303
        assert (await decided(dan, one))[0] == 303
        _, page = await cora.send("GET", one)
        assert "1 of 1 batch at vendors may still be there" in page
        assert "not yet at vendors" in (await cora.send("GET", AT))[1]
        assert "to be deleted" in page
        assert "in progress at the vendor" in page
        assert "open &amp; shut" in page
        assert msgspec.json.decode(await certificate(cora, one))["vendor_copies_left"] == 1
        await copies.end("gwp-1", "deleted", "batch_v1", "its name stays")
        _, page = await cora.send("GET", one)
        assert "No vendor has any of it any more" in page
        assert "may still be there" not in page
        assert "not yet at vendors" not in (await cora.send("GET", AT))[1]
        assert "its name stays" in page
        said = msgspec.json.decode(await certificate(cora, one))
        assert (said["vendor_copies_left"], said["vendor_copies"][0]["state"]) == (0, "deleted")
        _, text = await cora.send("GET", f"/api/organisations/acme/compliance/erasures/{case}")
        assert msgspec.json.decode(text)["copies"][0]["vendor_id"] == "batch_v1"


async def test_a_certificate_is_checked_offline_by_the_command_of_its_page(
    listener: Listener, tmp_path: Path
) -> None:
    await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        assert (await decided(dan, one))[0] == 303
        _, page = await cora.send("GET", one)
        answer, text = await cora.send("GET", f"{one}/certificate")
        _, verifier = await cora.send("GET", "/o/acme/integrity/verify.py")
    (tmp_path / "verify.py").write_text(verifier, "utf-8")
    name = answer.headers["content-disposition"].partition('filename="')[2].rstrip('"')
    (tmp_path / name).write_text(text, "utf-8")
    (command,) = re.findall(r"<code>python3 (verify.py .+)</code>", page)
    command = html.unescape(command).replace("KEYS", " ".join(log_keys(listener)))

    async def checked() -> tuple[int, str]:
        spoken = [sys.executable, *shlex.split(command)]
        done = await run_process(spoken, cwd=tmp_path, check=False)
        return done.returncode, done.stdout.decode()

    code, said = await checked()
    assert (code, said.splitlines()[-3:]) == (0, ["records: 1", "proved: 1", "it holds"])
    (key,) = msgspec.json.decode(text)["keys_destroyed"]
    (tmp_path / name).write_text(text.replace(f'["{key}"]', '["0123456789abcdef"]'), "utf-8")
    code, said = await checked()
    assert (code, "is of no key that the case destroyed" in said) == (1, True)


async def certificate(browser: Browser, one: str) -> str:
    return (await browser.send("GET", f"{one}/certificate"))[1]


async def test_a_record_that_cannot_be_read_leaves_a_certificate_that_is_not_of_all(
    listener: Listener,
) -> None:
    await converse(listener, ["ann", "bob", "cyd"])
    (segment,) = listener.settings.path(listener.settings.audit.directory).glob("t0-acme/*.log")
    raw = segment.read_bytes()
    at = raw.index(b'"req_acme_bob_0"')
    segment.write_bytes(raw[:at] + b"X" + raw[at + 1 :])
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        form = {"scope": "user", "user": "ann", "deed": "search", "law": "gdpr", "ticket": ""}
        _, found = await cora.send("POST", AT, form)
        not_told = "1 record of these days cannot be read, and nobody can tell whose content it has"
        assert f"content of 1 record or more ({not_told})" in found
        one = await opened(cora)
        assert not_told in (await cora.send("GET", one))[1]
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        said = msgspec.json.decode(await certificate(cora, one))
    numbers = {name: said[name] for name in ("records", "records_unreadable", "all_looked_at")}
    assert numbers == {"records": 1, "records_unreadable": 1, "all_looked_at": False}
    assert "Of 1 record of these days it cannot be told" in page
    assert "1 or more" in page


async def test_what_lies_in_another_audit_folder_is_said_not_to_be_reached(
    listener: Listener, tmp_path: Path
) -> None:
    await converse(listener, ["ann"])
    folder = listener.settings.path(listener.settings.audit.directory) / "t0-acme"
    form = {"scope": "user", "user": "ann", "deed": "search", "law": "gdpr", "ticket": ""}
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        _, found = await cora.send("POST", AT, form)
        assert ("1 key would be" in found, "Not counted" in found) == (True, False)
        folder.rename(tmp_path / "t0-acme")  # As where it is a worker of another machine.
        _, found = await cora.send("POST", AT, form)
        not_counted = "Not counted here: what worker t0-acme recorded."
        assert ("0 keys would be" in found, not_counted in found) == (True, True)
        one = await opened(cora)
        assert not_counted in (await cora.send("GET", one))[1]
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        said = msgspec.json.decode(await certificate(cora, one))
        assert "erased, not yet in every audit folder" in (await cora.send("GET", AT))[1]
    assert "Outstanding: No audit folder with the keys of worker t0-acme has reported" in page
    assert (said["workers_elsewhere"], said["all_looked_at"]) == (["t0-acme"], False)
    assert (said["complete"], said["reached_us"]) == (False, 0)
    (left,) = said["folders_outstanding"]
    assert (left["workers"], left["why"]) == (["t0-acme"], "unknown")


class Killed(BaseException):
    """As a process that is killed: nothing is cleaned up behind it."""


@pytest.mark.parametrize("is_half", [False, True])
async def test_an_erasure_that_was_killed_is_carried_on_and_certifies_all_its_keys(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, is_half: bool
) -> None:
    await converse(listener, ["ann"])
    await converse(listener, ["ann"], days_ago=1)

    async def killed(settings: Any, database: Any, keys: Any, now_us: int) -> None:
        await destroy(settings, database, keys[:1] if is_half else keys, now_us)
        raise Killed

    async def nothing(*_: object) -> None:
        """A killed process releases nothing."""

    async with office(listener) as erasures, person(listener, "cora") as cora:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        case = await erasures.cases.found(one.rpartition("/")[2])
        before = await content_keys(
            listener.settings, erasures._database, "acme", subject(listener, "ann")
        )
        with monkeypatch.context() as patched:
            patched.setattr("gateway.store.erasure.erasing.destroy", killed)
            patched.setattr(ErasureCases, "release", nothing)
            with pytest.raises(Killed):
                await erasures.approve("dan", case, "as the ticket says")
        _, page = await cora.send("GET", one)
        assert "dan began to carry it out on" in page
        assert "with 2 keys to destroy, and it is in progress" in page
        listener.clock.advance(CLAIM_US / 1e6)
        for path in (one, INBOX):
            _, page = await cora.send("GET", path)
            assert "dan began to carry it out on" in page
            assert "it did not finish: part of the content may be gone" in page
            assert "Withdraw the case" not in page
        assert "begun, not finished" in (await cora.send("GET", AT))[1]
        with pytest.raises(CustodyRefused, match="carried out to its end"):
            await erasures.cases.withdraw("cora", await erasures.cases.found(case.id))
        done = await erasures.approve("anton", await erasures.cases.found(case.id), "again")
        _, page = await cora.send("GET", one)
        said = msgspec.json.decode(await certificate(cora, one))
    assert (len(before), done.keys) == (2, 2)
    assert set(said["keys_destroyed"]) == {key.key for key in before}
    assert (said["records"], said["contents_unreadable"]) == (2, 2)
    assert [each["by"] for each in said["attempts"]] == ["dan", "anton"]
    found = [len(each["keys_found"]) for each in said["attempts"]]
    assert found == [2, 1 if is_half else 0]
    assert f"2 times; {found[1]} of the keys were left for the last" in page
    assert "began to carry it out" not in page


@asynccontextmanager
async def office(listener: Listener) -> AsyncIterator[Erasures]:
    """Where erasures are carried out, by the clock of the listener."""
    settings, master = listener.settings, master_key(listener.settings)
    async with opened_custody(settings) as (custody, database):
        parts = Integration(settings, database, listener.clock, master)
        yield Erasures(settings, database, custody, parts, master, listener.clock)


async def test_a_certificate_says_that_damaged_lines_of_key_files_were_not_erased(
    listener: Listener,
) -> None:
    await converse(listener, ["ann", "bob"])
    folder = listener.settings.path(listener.settings.audit.directory)
    (path,) = folder.glob("t0-acme/keys.jsonl")
    digest = subject(listener, "bob")
    assert path.read_bytes().count(digest.encode()) == 1
    path.write_bytes(path.read_bytes().replace(digest.encode(), b"\xff" * len(digest)))
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        said = msgspec.json.decode(await certificate(cora, one))
    assert (said["key_lines_damaged"], len(said["keys_destroyed"])) == (1, 1)
    assert "Damaged key lines, not erased" in page
    assert b"\xff" * len(digest) in path.read_bytes()


async def test_a_certificate_says_that_a_damaged_answer_was_not_looked_at(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    now_us = listener.clock.utc_us()
    async with opened_custody(listener.settings) as (_, database):
        answers = DatabaseAnswers(database, master_key(listener.settings))
        for name in ("lost", "kept"):
            said = msgspec.json.encode({"id": name, "user": "ann", "output": []})
            place, until_us = Project("acme", "research", "assistant"), now_us + 10**12
            kept = KeptAnswer(name, place, "key1", "", "S0", now_us, until_us, b"[]", said)
            await answers.keep(kept)
        async with database.writing() as connection:
            lost = update(kept_answers).where(kept_answers.c.id == "lost")
            await connection.execute(lost.values(sealed=b"damaged"))
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        told = msgspec.json.decode(await certificate(cora, one))
    assert (told["kept_all_looked_at"], told["kept"]["answers"]) == (False, 1)
    assert told["kept"]["unnamed_answers"] == 1
    assert "0 or more" in page


async def test_a_certificate_of_an_organisation_says_how_many_files_went(
    listener: Listener,
) -> None:
    """Nobody reads how many lines stand in them."""
    await converse(listener, ["ann"])
    async with opened_custody(listener.settings) as (_, database):
        files = FileStore(database, master_key(listener.settings), listener.clock)
        for _ in range(3):
            writer = await files.begin(Project("acme", "research", "assistant"), "key1", "batch")
            await writer.write(b"{}\n")
            await writer.finish("a.jsonl", listener.clock.utc_us() + 10**12)
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora, scope="organisation", user="")
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        told = msgspec.json.decode(await certificate(cora, one))
    assert (told["kept"]["files"], told["kept_left"]) == (3, 0)
    assert "<dt>Files</dt><dd>3</dd>" in page


async def test_nothing_is_erased_while_a_segment_cannot_be_read_at_this_moment(
    listener: Listener,
) -> None:
    (ann,) = await converse(listener, ["ann"])
    (segment,) = listener.settings.path(listener.settings.audit.directory).glob("t0-acme/*.log")
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        aside = segment.rename(segment.with_name("aside"))
        segment.mkdir()
        status, page = await decided(dan, one)
        assert (status, "cannot be read at this moment" in page) == (409, True)
        answer, page = await cora.send("GET", one)
        assert (answer.status, "cannot be read at this moment" in page) == (200, True)
        form = {"scope": "user", "user": "ann", "deed": "search", "law": "gdpr", "ticket": ""}
        answer, page = await cora.send("POST", AT, form)
        assert (answer.status, "cannot be read at this moment" in page) == (400, True)
        segment.rmdir()
        aside.rename(segment)
        assert f"{SAID}ann" in await content_of(listener, ann)
        assert (await decided(dan, one))[0] == 303
        said = msgspec.json.decode(await certificate(cora, one))
    assert (said["records"], said["all_looked_at"]) == (1, True)
    assert f"{SAID}ann" not in await content_of(listener, ann)


async def test_an_erasure_that_a_hold_overtakes_is_on_record_as_not_done(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ann,) = await converse(listener, ["ann"])
    find = KeptContent.find

    async def slowly(self: KeptContent, organisation: str, *given: Any, **named: Any) -> Holding:
        """Whoever reads everything takes so long that somebody sets a hold."""
        if "bytes_max" in named:
            await erasures._custody.set_hold("leo", organisation, "", "a lawsuit")
        return await find(self, organisation, *given, **named)

    async with office(listener) as erasures, person(listener, "cora") as cora:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        case = await erasures.cases.found(one.rpartition("/")[2])
        monkeypatch.setattr(KeptContent, "find", slowly)
        with pytest.raises(CustodyRefused, match="a lawsuit"):
            await erasures.approve("dan", case, "as the ticket says")
        assert (await erasures.cases.found(case.id)).state == "open"
    assert f"{SAID}ann" in await content_of(listener, ann)
    # Once when it began, and once that it did not come about.
    assert (await deeds(listener)).count(("dan", "content.erased")) == 2


@pytest.mark.parametrize("listener_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_content_whose_key_came_back_is_not_certified_because_its_segment_is_away(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are in the database here, contents in segments: the certificate looks at keys."""
    await converse(listener, ["ann"])
    (segment,) = listener.settings.path(listener.settings.audit.directory).glob("t0-acme/*.log")

    async def fails_silently(*_: object) -> None:
        segment.unlink()
        segment.mkdir()

    monkeypatch.setattr("gateway.store.erasure.erasing.destroy", fails_silently)
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await opened(cora)
        assert await asked(cora, one) == 303
        assert (await decided(dan, one))[0] == 303
        said = msgspec.json.decode(await certificate(cora, one))
        _, page = await cora.send("GET", one)
    assert (said["checked"], said["contents_unreadable"]) == (1, 0)
    assert "1 can still be read" in page
