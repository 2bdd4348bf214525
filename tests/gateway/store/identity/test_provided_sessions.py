"""Sessions of an OpenID provider in both databases: what is sealed, what ends, and only once."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select, update

from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import Database, open_database
from gateway.store.identity import provided_sessions
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.provided_sessions import (
    ID_TOKEN_CHARS_MAX,
    Logout,
    LogoutKnown,
    ProvidedSessions,
    Vouching,
    heard_logouts,
)
from gateway.store.identity.sessions import IDLE_S
from gateway.store.schema.tables import admin_sessions


pytestmark = pytest.mark.anyio
ISSUER = "https://id.example"
SUBJECT = f"{ISSUER}|ann"
TOKEN = f"canary-{secrets.token_hex(12)}"
SECOND = 1_000_000
MASTER = secrets.token_bytes(32)


def made(database: Database, clock: StoppedClock, master: bytes = b"") -> ProvidedSessions:
    return ProvidedSessions(database, MasterKey(Secret(master or MASTER)), clock)


def vouching(clock: StoppedClock, sid: str = "s1", subject: str = SUBJECT) -> Vouching:
    return Vouching(subject, f"{ISSUER}|{sid}" if sid else "", clock.utc_us(), Secret(TOKEN))


def logout(clock: StoppedClock, sid: str = "s1", subject: str = SUBJECT) -> Logout:
    now_us = clock.utc_us()
    named = f"{ISSUER}|{sid}" if sid else ""
    return Logout(secrets.token_hex(8), subject, named, now_us, now_us + 420 * SECOND)


async def rows(database: Database) -> list[Any]:
    async with database.reading() as connection:
        return [*(await connection.execute(select(admin_sessions))).mappings()]


async def begun(sessions: ProvidedSessions, clock: StoppedClock, sid: str = "s1") -> str:
    session_id = await sessions.begin("ann", vouching(clock, sid))
    assert session_id is not None
    return session_id


async def test_an_identity_token_lies_sealed_and_opens_for_its_own_session_only(
    database: Database,
) -> None:
    clock = StoppedClock()
    sessions = made(database, clock)
    first, second = await begun(sessions, clock), await begun(sessions, clock, "s2")
    by_password = await PeopleStore(database, clock).begin("ann")

    found = await sessions.id_token(first)
    assert found is not None
    assert found.reveal() == TOKEN
    assert await sessions.id_token(by_password) is None
    assert await sessions.id_token("no such session") is None
    kept = repr(await rows(database))
    assert TOKEN not in kept
    assert ISSUER not in kept
    other = made(database, clock, secrets.token_bytes(32))
    assert await other.id_token(first) == Secret("")
    # Both columns of one row put into the other's: it is bound to its own.
    source, target = [each for each in await rows(database) if each["id_token"] is not None]
    moved = {name: source[name] for name in ("id_token", "id_token_key")}
    change = update(admin_sessions).where(admin_sessions.c.digest == target["digest"])
    async with database.writing() as connection:
        await connection.execute(change.values(**moved))
    opened = [await sessions.id_token(each) for each in (first, second)]
    assert sorted(each.reveal() for each in opened if each is not None) == ["", TOKEN]


async def test_a_token_too_long_for_an_address_is_not_kept(database: Database) -> None:
    clock = StoppedClock()
    sessions = made(database, clock)
    for length, kept in ((ID_TOKEN_CHARS_MAX, True), (ID_TOKEN_CHARS_MAX + 1, False)):
        long = replace(vouching(clock), id_token=Secret("t" * length))
        session_id = await sessions.begin("ann", long)
        assert session_id is not None
        found = await sessions.id_token(session_id)
        assert found is not None
        assert bool(found.reveal()) == kept


async def _sign_out(database: Database, clock: StoppedClock, session_id: str) -> None:
    await PeopleStore(database, clock).end(session_id)


async def _disable(database: Database, clock: StoppedClock, _: str) -> None:
    await PeopleStore(database, clock).disable("ann")


async def _password(database: Database, clock: StoppedClock, _: str) -> None:
    await PeopleStore(database, clock).set_password("ann", Secret(secrets.token_hex(12)))


async def _invite(database: Database, clock: StoppedClock, _: str) -> None:
    links = Invitations(database, clock)
    code = await links.make("ann", "os:root")
    await links.redeem(code, Secret(secrets.token_hex(12)))


async def _idle(database: Database, clock: StoppedClock, _: str) -> None:
    clock.advance(IDLE_S + 1)
    await PeopleStore(database, clock).forget_over()


async def _there(database: Database, clock: StoppedClock, _: str) -> None:
    await made(database, clock).end(logout(clock))


@pytest.mark.parametrize("end", [_sign_out, _disable, _password, _invite, _idle, _there])
async def test_however_a_session_ends_its_token_is_gone_with_it(
    database: Database, end: Callable[[Database, StoppedClock, str], Awaitable[None]]
) -> None:
    clock = StoppedClock()
    await PeopleStore(database, clock).add("ann")
    session_id = await begun(made(database, clock), clock)
    await end(database, clock, session_id)

    # Whoever follows a link is signed in at once, without one.
    assert [row["id_token"] for row in await rows(database)] == [None] * (end is _invite)


async def test_a_session_in_use_is_not_forgotten(database: Database) -> None:
    clock = StoppedClock()
    await begun(made(database, clock), clock)
    clock.advance(IDLE_S - 1)
    await PeopleStore(database, clock).forget_over()
    assert len(await rows(database)) == 1


async def test_of_several_processes_that_hear_the_same_sign_out_one_takes_it(
    database: Database, database_url: str
) -> None:
    clock = StoppedClock()
    others = [open_database(database_url) for _ in range(3)]
    try:
        for _ in range(5):
            clock.advance(1)
            await begun(made(database, clock), clock)
            said = logout(clock)
            found = await asyncio.gather(
                *(made(each, clock).end(said) for each in (database, *others)),
                return_exceptions=True,
            )
            assert sorted(map(str, found)) == ["1", *["This sign-out was heard before."] * 3]
            with pytest.raises(LogoutKnown):
                await made(others[0], clock).whose(said)
    finally:
        for each in others:
            await each.close()


@pytest.mark.parametrize(
    ("sid", "subject", "ends"),
    [
        ("s1", SUBJECT, True),
        ("s1", "", True),
        ("", SUBJECT, True),
        ("s2", SUBJECT, False),
        ("s1", f"{ISSUER}|bob", False),
        ("", f"{ISSUER}|bob", False),
    ],
)
async def test_a_sign_in_under_way_while_the_provider_ends_it_gets_no_session(
    database: Database, sid: str, subject: str, ends: bool
) -> None:
    clock = StoppedClock()
    sessions = made(database, clock)
    before = vouching(clock)
    clock.advance(1)
    await sessions.end(logout(clock, sid, subject))

    assert (await sessions.begin("ann", before) is None) == ends
    clock.advance(1)
    # Who signed in again is vouched for anew.
    assert await sessions.begin("ann", vouching(clock)) is not None


async def test_of_a_sign_in_without_a_name_of_its_session_any_end_of_its_person_counts(
    database: Database,
) -> None:
    clock = StoppedClock()
    sessions = made(database, clock)
    await sessions.end(logout(clock, "s7"))
    assert await sessions.begin("ann", vouching(clock, "")) is None
    assert await sessions.begin("bob", vouching(clock, "", f"{ISSUER}|bob")) is not None


async def test_a_sign_out_of_one_session_ends_what_may_be_it_and_no_other(
    database: Database,
) -> None:
    """A session that the provider gave no name cannot be told from the one that it ends."""
    clock = StoppedClock()
    sessions = made(database, clock)
    named, nameless = await begun(sessions, clock, "s1"), await begun(sessions, clock, "")
    other = await begun(sessions, clock, "s2")
    stranger = await sessions.begin("bob", vouching(clock, "", f"{ISSUER}|bob"))
    clock.advance(1)

    assert await sessions.end(logout(clock, "s1")) == 2
    left = [await sessions.id_token(each) for each in (named, nameless, other, stranger or "")]
    assert [each is not None for each in left] == [False, False, True, True]


async def test_whoever_was_disabled_on_the_way_back_has_no_session_when_they_are_enabled(
    database: Database,
) -> None:
    clock = StoppedClock()
    people, sessions = PeopleStore(database, clock), made(database, clock)
    await people.add("oidc-ann", subject=f"{ISSUER}|ann")
    await people.disable("oidc-ann")
    assert await sessions.begin("oidc-ann", vouching(clock)) is None
    await people.enable("oidc-ann")
    assert await sessions.begin("oidc-ann", vouching(clock)) is not None
    assert len(await rows(database)) == 1


async def test_sign_ins_and_the_end_of_them_all_at_once_leave_nobody_signed_in(
    database: Database, database_url: str
) -> None:
    clock = StoppedClock()
    other = open_database(database_url)
    try:
        for _ in range(10):
            at_first = vouching(clock)
            await asyncio.gather(
                *(made(database, clock).begin("ann", at_first) for _ in range(3)),
                made(other, clock).end(logout(clock, "")),
                *(made(database, clock).begin("ann", at_first) for _ in range(3)),
            )
            assert await rows(database) == []
            clock.advance(1)
    finally:
        await other.close()


async def test_a_sign_out_of_nobody_ends_nobody(database: Database) -> None:
    """Not even those whom no provider vouched for, of whom nothing is kept either."""
    clock = StoppedClock()
    await PeopleStore(database, clock).begin("root")
    assert await made(database, clock).end(logout(clock, "", "")) == 0
    assert await made(database, clock).whose(logout(clock, "", "")) == []
    assert len(await rows(database)) == 1


async def test_so_many_sign_outs_are_remembered_until_they_are_too_old(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provided_sessions, "HEARD_MAX", 3)
    clock = StoppedClock()
    sessions = made(database, clock)
    for _ in range(3):
        await sessions.end(logout(clock))
    with pytest.raises(NotReady):
        await sessions.end(logout(clock))
    clock.advance(421)
    await sessions.end(logout(clock))
    async with database.reading() as connection:
        assert len((await connection.execute(select(heard_logouts))).all()) == 1
