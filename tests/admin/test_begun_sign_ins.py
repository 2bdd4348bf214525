"""Sign-ins under way lie in the browsers that began them: nobody pushes out anybody's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.fernet import Fernet

from admin.sign_in.begun import BEGUN_FOR_S, Begun, BegunSignIns
from admin.sign_in.oidc import OpenIdClient
from gateway.clock import StoppedClock
from gateway.configuration.sections import OidcSettings
from gateway.errors import Unauthenticated
from gateway.secrets.secret import Secret
from tests.admin.provider_of_a_test import CLIENT, PEPPER, Liar


pytestmark = pytest.mark.anyio

OTHER_PEPPER = PEPPER[::-1]
SESSION = "a session that the browser had"
COOKIE_BYTES_MAX = 4096
"""With its name and attributes, by RFC 6265; browsers leave out a longer one without a word."""
ATTRIBUTES = "gatewright_oidc=; HttpOnly; Path=/; SameSite=lax; Secure"


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


class Desk:
    """Listeners of one provider, each a process of its own."""

    def __init__(self, liar: Liar, clock: StoppedClock, stack: AsyncExitStack) -> None:
        self._liar, self._clock, self._stack = liar, clock, stack

    def listener(self, pepper: bytes = PEPPER, client_id: str = CLIENT) -> OpenIdClient:
        settings = OidcSettings(issuer=self._liar.issuer, client_id=client_id)
        back = "http://127.0.0.1/back"
        client = OpenIdClient(settings, None, self._clock, back, pepper=pepper)
        self._stack.push_async_callback(client.close)
        return client

    async def began(self, client: OpenIdClient, **more: Any) -> tuple[str, str]:
        """The cookie, and the state that the provider brings back."""
        url, ticket = await client.begin(**more)
        asked = parse_qs(urlsplit(url).query)
        self._liar.nonce = asked["nonce"][0]
        return ticket, asked["state"][0]


@pytest.fixture
def desk(liar: Liar, clock: StoppedClock, stack: AsyncExitStack) -> Desk:
    return Desk(liar, clock, stack)


async def test_another_listener_of_the_pepper_finishes_what_one_began(desk: Desk) -> None:
    """So none keeps anything of it that somebody else could push out, or a restart forget."""
    ticket, state = await desk.began(desk.listener(), former=SESSION, to="/o/acme/costs")
    vouched = await desk.listener().finish(ticket, state, "a code")
    assert (vouched.former.reveal(), vouched.to) == (SESSION, "/o/acme/costs")


async def test_what_was_not_sealed_here_for_this_provider_is_worth_nothing(
    desk: Desk, liar: Liar
) -> None:
    client = desk.listener()
    theirs, their_state = await desk.began(desk.listener(OTHER_PEPPER))
    elsewhere, its_state = await desk.began(desk.listener(client_id="another"))
    ticket, state = await desk.began(client)
    own = Fernet(Fernet.generate_key()).encrypt(b'["s","n","v","",""]').decode()
    middle = len(ticket) // 2
    changed = ticket[:middle] + ("B" if ticket[middle] == "A" else "A") + ticket[middle + 1 :]
    liar.asked.clear()
    for brought in (
        *((theirs, their_state), (elsewhere, its_state), (own, "s"), (changed, state)),
        *(
            ("", state),
            ("\u00e9\ud800", state),
            (ticket, ""),
            (ticket, "a guess"),
            (ticket, "\u00e9"),
        ),
    ):
        with pytest.raises(Unauthenticated):
            await client.finish(*brought, "a code")
    assert liar.asked == [], "the provider is not asked"
    assert (await client.finish(ticket, state, "a code")).subject, "and nothing was lost by it"


async def test_what_was_begun_is_finished_once(desk: Desk, liar: Liar, clock: StoppedClock) -> None:
    client = desk.listener()
    ticket, state = await desk.began(client)
    assert (await client.finish(ticket, state, "a code")).subject
    asked = len(liar.asked)
    for later_s in (0, BEGUN_FOR_S, 1):
        clock.advance(later_s)
        with pytest.raises(Unauthenticated):
            await client.finish(ticket, state, "a code")
    assert len(liar.asked) == asked, "the provider is not asked"


async def test_of_two_at_once_one_is_finished(desk: Desk) -> None:
    client = desk.listener()
    ticket, state = await desk.began(client)
    both = (client.finish(ticket, state, "a code") for _ in range(2))
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(each, Unauthenticated) for each in ended) == [False, True]


async def test_one_that_the_provider_did_not_vouch_for_may_be_tried_again(
    desk: Desk, liar: Liar
) -> None:
    """Kept, anybody who begins and finishes with any code would fill what is kept."""
    client = desk.listener()
    ticket, state = await desk.began(client)
    liar.forge = lambda _: ""
    with pytest.raises(Unauthenticated):
        await client.finish(ticket, state, "a code")
    liar.forge = liar.honest
    assert (await client.finish(ticket, state, "a code")).subject


async def test_a_cookie_shows_nothing_of_what_is_in_it(desk: Desk) -> None:
    client = desk.listener()
    first, state = await desk.began(client, former=SESSION, to="/o/acme/costs")
    second, _ = await desk.began(client, former=SESSION, to="/o/acme/costs")
    assert first != second
    for said in (SESSION, "acme", state):
        assert said not in first


@pytest.mark.parametrize("length", [0, 100, 1800, 5000])
def test_a_cookie_is_never_longer_than_browsers_keep(length: int, clock: StoppedClock) -> None:
    begun = BegunSignIns("https://id.example", CLIENT, PEPPER, clock)
    to = "/" + "x" * length
    ticket = begun.sealed(Begun("s" * 43, "n" * 43, "v" * 64, Secret("f" * 110), to))
    assert len(ATTRIBUTES) + len(ticket) <= COOKIE_BYTES_MAX
    with begun.finishing(ticket, "s" * 43) as opened:
        assert opened.to == ("" if length > 2000 else to)
        assert opened.former.reveal() == "f" * 110
