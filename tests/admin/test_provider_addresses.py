"""What an OpenID provider names as its own is called only where the settings let it be."""

from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from admin.sign_in.oidc import OpenIdClient
from admin.sign_in.provider_addresses import is_of_provider
from gateway.clock import StoppedClock
from gateway.configuration.sections import OidcSettings
from gateway.errors import Unauthenticated
from gateway.secrets.secret import Secret
from tests.admin.provider_of_a_test import CLIENT, PEPPER, Liar


pytestmark = pytest.mark.anyio

TLS = "https://idp.example"


@pytest.fixture
def inner() -> Iterator[Liar]:
    """Something else on the network, which answers whoever asks."""
    inner = Liar()
    yield inner
    inner.stop()


@pytest.fixture
async def client(liar: Liar) -> AsyncIterator[OpenIdClient]:
    client = client_of(liar)
    yield client
    await client.close()


def client_of(liar: Liar, *hosts: str) -> OpenIdClient:
    settings = OidcSettings(issuer=liar.issuer, client_id=CLIENT, hosts=hosts)
    return OpenIdClient(
        settings, Secret("s"), StoppedClock(), "http://127.0.0.1/back", pepper=PEPPER
    )


def elsewhere(inner: Liar, path: str) -> str:
    """An address of it under a host that is not the issuer's."""
    return f"http://localhost:{urlsplit(inner.issuer).port}{path}"


async def test_no_key_is_fetched_and_no_code_taken_to_another_host(
    liar: Liar, inner: Liar, client: OpenIdClient
) -> None:
    """Whoever can change what the provider says of itself made this process ask any address."""
    url, ticket = await client.begin()
    state = parse_qs(urlsplit(url).query)["state"][0]
    liar.more = {"token_endpoint": elsewhere(inner, "/token"), "jwks_uri": f"{liar.issuer}/keys"}
    with pytest.raises(Unauthenticated):
        await client.finish(ticket, state, "a code")
    liar.more = {"jwks_uri": elsewhere(inner, "/keys")}
    with pytest.raises(Unauthenticated):
        await client.keys()
    assert inner.asked == []


async def test_no_address_of_a_provider_leads_on_to_another(
    liar: Liar, inner: Liar, client: OpenIdClient
) -> None:
    """A redirect would carry the code and our client's secret to wherever it points."""
    url, ticket = await client.begin()
    state = parse_qs(urlsplit(url).query)["state"][0]
    for path in ("/token", "/keys", "/.well-known/openid-configuration"):
        liar.elsewhere[path] = inner.issuer + path
    with pytest.raises(Unauthenticated):
        await client.keys()
    del liar.elsewhere["/.well-known/openid-configuration"]
    with pytest.raises(Unauthenticated):
        await client.keys()
    with pytest.raises(Unauthenticated):
        await client.finish(ticket, state, "a code")
    assert inner.asked == []


async def test_a_provider_that_says_it_is_another_begins_nothing(
    liar: Liar, client: OpenIdClient
) -> None:
    for issuer in ("https://other.example", f"{liar.issuer}/", None):
        liar.more = {"issuer": issuer}
        with pytest.raises(Unauthenticated):
            await client.begin()


async def test_the_way_out_is_told_once(liar: Liar, client: OpenIdClient) -> None:
    """It names somebody's session by the provider's token for them."""
    liar.more = {"end_session_endpoint": f"{liar.issuer}/end"}
    ticket = await client.leave(Secret("a token"))
    assert "a+token" in client.way_out(ticket)
    assert client.way_out(ticket) == ""


async def test_no_browser_is_sent_to_another_host(
    liar: Liar, inner: Liar, client: OpenIdClient
) -> None:
    liar.more = {"end_session_endpoint": elsewhere(inner, "/end")}
    assert await client.leave(Secret("a token")) == ""
    liar.more = {"authorization_endpoint": elsewhere(inner, "/authorize")}
    with pytest.raises(Unauthenticated):
        await client.begin()


async def test_the_operator_is_told_which_address_it_was(
    liar: Liar, inner: Liar, client: OpenIdClient
) -> None:
    """A provider whose keys are at another host of its own is not found by guessing."""
    liar.more = {"jwks_uri": elsewhere(inner, "/keys")}
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                await client.begin()
    (said,) = [line for line in lines if line["event"] == "admin:provider_refused"]
    assert "jwks_uri" in said["reason"]
    assert "oidc.hosts" in said["reason"]


async def test_what_a_provider_names_at_a_host_of_the_settings_is_called(
    liar: Liar,
) -> None:
    """Google's keys are at another host than its issuer; it is named, and spoken to over TLS."""
    liar.more = {"end_session_endpoint": "https://end.example/out"}
    client = client_of(liar, "end.example")
    try:
        ticket = await client.leave(Secret(""))
        assert client.way_out(ticket).startswith("https://end.example/out?")
    finally:
        await client.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://idp.example/token",
        "https://IDP.example:8443/token?a=b",
        "https://keys.example/",
        "https://keys.example",
    ],
)
def test_an_address_is_the_issuers_or_of_a_host_of_the_settings(url: str) -> None:
    assert is_of_provider(url, TLS, ("Keys.example",))


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/token",
        "http://keys.example/",
        "https://other.example/",
        "https://idp.example.other.example/",
        "https://sub.idp.example/",
        "https://idp.example@other.example/",
        "https://user:word@idp.example/",
        "https://idp.example\\@other.example/",
        "https://other.example\\.idp.example/",
        "https://other.example#@idp.example/",
        "https://idp.example:port/",
        "https://idp.example:99999/",
        "https://[::1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://idp.example/\r\nhost: other.example",
        "https://idp.example /",
        "https:idp.example/",
        "https:///idp.example/",
        "//idp.example/",
        "/token",
        "",
        "file:///etc/passwd",
        "https://ıdp.example/",
    ],
)
def test_no_other_address_is_the_providers(url: str) -> None:
    assert not is_of_provider(url, TLS, ("keys.example",))


def test_a_provider_on_this_machine_names_only_itself() -> None:
    local = "http://127.0.0.1:9000"
    assert is_of_provider("http://127.0.0.1:9000/keys", local, ())
    assert is_of_provider("https://keys.example/", local, ("keys.example",))
    assert not is_of_provider("http://keys.example/", local, ("keys.example",))
    assert not is_of_provider("http://169.254.169.254/", local, ())
    assert not is_of_provider("https://idp.example/", local, ())
