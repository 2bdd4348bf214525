"""Nobody can sign in, so the admin token does: it lets somebody in, and is nobody where two decide.

Break-glass from end to end: what it may, what it may not, what stays of it, and how it ends.
"""

import re
import secrets
from pathlib import Path

import msgspec
import pytest

from admin.access import COOKIE
from gateway.actors import TOKENS_NAME
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
CHOSEN = "a password of her own"


async def invites(token: Browser, listener: Listener) -> None:
    """Somebody who may look after people, and who chooses her password by herself."""
    form = {"name": "sara", "role": "security_admin", "organisation": "*"}
    answer, page = await token.send("POST", "/new-person", form)
    assert answer.status == 201, page
    answer, page = await token.send("POST", "/person/sara/link")
    code = re.search(r"/invitation#([\w-]{40,})", page)
    assert code is not None, page
    async with browsing(listener) as hers:
        form = {"code": code[1], "password": CHOSEN}
        assert (await hers.send("POST", "/invitation", form))[0].status == 303


async def test_break_glass_from_the_token_to_its_end(tmp_path: Path, sqlite_url: str) -> None:
    async with Listener(tmp_path, sqlite_url) as listener, browsing(listener) as token:
        key_id = await seeding.issue(listener, "leaked", models=frozenset({"house"}))
        keys = f"/api/organisations/acme/keys/{key_id}"
        assert (await token.sign_in(secrets.token_urlsafe(32))).status == 401
        assert (await token.sign_in()).status == 303

        # What takes nothing but one pair of hands.
        answer, text = await token.send("POST", f"{keys}/revoke", body='{"reason": "it leaked"}')
        assert answer.status in (200, 201, 204), text
        await invites(token, listener)

        # What takes two people takes persons.
        path = "/o/acme/policies/organisation/submit"
        answer, page = await token.send("POST", path, {"reason": "x"})
        assert (answer.status, "the admin token is nobody" in page) == (403, True)
        answer, _ = await token.send("POST", "/o/acme/compliance/reveals", {"reason": "x"})
        assert answer.status == 403

        # All of it is on record, as nobody's own.
        done = [each for each in await deeds(listener) if each.actor == TOKENS_NAME]
        actions = {each.action for each in done}
        assert {"session.began", "key.revoked", "person.added"} <= actions
        assert not any("submitted" in each or "reveal" in each for each in actions)
        cookie = f"{COOKIE}={token.session_id}"

    # After the night another token is put in its place.
    (tmp_path / "var" / "admin.token").write_text(secrets.token_urlsafe(32))
    async with Listener(tmp_path, sqlite_url) as after, browsing(after) as browser:
        answer, _ = await browser.send("GET", "/", cookie=cookie)
        assert (answer.status, answer.headers["location"]) == (303, "/sign-in")
        assert (await browser.sign_in(listener.token)).status == 401
        assert not await browser.is_signed_in()
        # She whom it let in stays, and is a person of her own.
        assert (await browser.sign_in_as("sara", CHOSEN)).status == 303
        told = await browser.send("GET", "/api/organisations/acme/keys")
        assert msgspec.json.decode(told[1]), told[0].status
