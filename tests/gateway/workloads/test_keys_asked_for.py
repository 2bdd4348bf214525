"""Keys of issuers: how often they are asked for, and for how long they are believed."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.errors import GatewrightError, Unavailable
from gateway.secrets.issuer_keys import KeysRefused
from tests.certificates import Authority
from tests.gateway.workloads.callers_of_a_test import RSA, Gate
from tests.token_issuer import TokenIssuer, curve_key, published, signed


pytestmark = pytest.mark.anyio
GOOD = published("k1", RSA)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (302, b"", {"location": "/elsewhere"}),
        (500, b"{}", {}),
        (200, b"<html>", {}),
        (200, json.dumps({"keys": [GOOD] * 10_000}).encode(), {}),
        (200, b"{" + b" " * 50_000_000, {}),
        (204, b"", {}),
    ],
)
async def test_an_answer_that_is_no_set_of_keys_leaves_those_that_are_known(
    gate: Gate, issuer: TokenIssuer, status: int, body: bytes, headers: dict[str, str]
) -> None:
    await gate.callers.renew()
    issuer.answer = web.Response(status=status, body=body, headers=headers)
    gate.clock.later_s = 301.0
    with pytest.raises(GatewrightError):
        await gate.callers.renew()
    assert issuer.asked == 2
    assert await gate.asks(issuer.token())


async def test_an_address_that_leads_elsewhere_is_not_followed(
    gate: Gate, issuer: TokenIssuer
) -> None:
    async with TokenIssuer(k1=RSA) as other:
        issuer.answer = web.Response(status=307, headers={"location": f"{other.url}/keys"})
        with pytest.raises(Unavailable):
            await gate.asks(issuer.token())
        assert other.asked == 0


async def test_keys_are_asked_for_again_when_they_are_old(gate: Gate, issuer: TokenIssuer) -> None:
    for later_s, asked in ((0.0, 1), (299.0, 1), (301.0, 2), (302.0, 2)):
        gate.clock.later_s = later_s
        await gate.callers.renew()
        assert issuer.asked == asked


async def test_nobody_is_asked_about_a_key_that_is_known(gate: Gate, issuer: TokenIssuer) -> None:
    """Else every token would wait for its issuer, and behind strangers' tokens."""
    for number in range(3):
        gate.clock.later_s = 30.0 * number
        assert await gate.asks(issuer.token(number=number))
    assert issuer.asked == 1


async def test_an_issuer_that_is_away_is_asked_only_so_often(
    gate: Gate, issuer: TokenIssuer
) -> None:
    issuer.answer = web.Response(status=503)
    for number in range(3):
        with pytest.raises(Unavailable):
            await gate.asks(issuer.token(number=number))
    assert issuer.asked == 1


async def test_every_issuer_is_asked_whatever_becomes_of_the_others(
    issuer: TokenIssuer, tmp_path: Path
) -> None:
    async with TokenIssuer(k1=curve_key()) as other:
        theirs = other.settings("partner").replace(other.issuer, "https://partner.example.com")
        gate = Gate(issuer, tmp_path, issuer.settings() + theirs)
        issuer.answer, other.answer = web.Response(status=503), web.Response(status=500)
        with pytest.raises(KeysRefused, match=r"^cluster: .* 503"):
            await gate.callers.renew()
        assert (issuer.asked, other.asked) == (1, 1)
        await gate.egress.close()


async def test_the_same_keys_told_again_leave_what_they_proved(
    gate: Gate, issuer: TokenIssuer
) -> None:
    token = issuer.token()
    assert await gate.asks(token)
    gate.clock.later_s = 301.0
    await gate.callers.renew()
    assert await gate.asks(token)
    assert issuer.asked == 2
    assert gate.counted == {("cluster", "verified"): 1, ("cluster", "known"): 1}


async def test_a_key_that_was_withdrawn_ends_what_it_had_proved(
    gate: Gate, issuer: TokenIssuer
) -> None:
    old = issuer.token()
    assert await gate.asks(old)
    issuer.keys = {"k2": curve_key()}
    gate.clock.later_s = 301.0
    await gate.callers.renew()
    assert await gate.refuses(old) == "key"
    assert await gate.asks(issuer.token())


async def test_unknown_keys_make_us_ask_at_once_and_then_only_so_often(
    gate: Gate, issuer: TokenIssuer
) -> None:
    await gate.callers.renew()
    gate.clock.later_s = 20.0
    strange = [
        signed({"alg": "RS256", "kid": f"k{number}9"}, issuer.claims(), RSA) for number in range(50)
    ]
    assert set(await asyncio.gather(*map(_why(gate), strange))) == {"key"}
    assert issuer.asked == 2
    issuer.keys = {"k2": curve_key()}
    assert await gate.refuses(issuer.token()) == "key"
    gate.clock.later_s = 40.0
    assert await gate.asks(issuer.token())
    assert issuer.asked == 3


def _why(gate: Gate) -> Any:
    async def why(token: str) -> str:
        try:
            await gate.asks(token)
        except GatewrightError:
            return {outcome for _, outcome in gate.counted}.pop()
        return "taken"

    return why


async def test_an_issuer_that_is_away_is_believed_for_an_hour(
    gate: Gate, issuer: TokenIssuer
) -> None:
    await gate.callers.renew()
    issuer.answer = web.Response(status=503)
    for later_s in (301.0, 1800.0, 3590.0):
        gate.clock.later_s = later_s
        with pytest.raises(KeysRefused, match="cluster: its keys' address answered with HTTP 503"):
            await gate.callers.renew()
        assert await gate.asks(issuer.token(exp=issuer.clock.utc_us() // 1_000_000 + 7200))
    gate.clock.later_s = 3610.0
    with pytest.raises(Unavailable) as caught:
        await gate.asks(issuer.token(exp=issuer.clock.utc_us() // 1_000_000 + 7200))
    assert caught.value.retry_after_s == 5.0
    assert gate.counted["cluster", "keys_unavailable"] == 1
    issuer.answer = None
    gate.clock.later_s = 3625.0
    assert await gate.asks(issuer.token(exp=issuer.clock.utc_us() // 1_000_000 + 7200))


async def test_keys_of_a_file_are_read_as_it_changes_and_not_where_others_write_it(
    issuer: TokenIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    sections = issuer.settings().replace(
        f'jwks_url = "{issuer.url}/.well-known/jwks.json"', 'jwks_file = "keys.json"'
    )
    gate = Gate(issuer, tmp_path, sections)
    with pytest.raises(Unavailable):
        await gate.asks(issuer.token())
    file.write_bytes(issuer.jwks)
    file.chmod(0o666)
    gate.clock.later_s = 20.0
    with pytest.raises(KeysRefused, match="can be written by others"):
        await gate.callers.renew()
    file.chmod(0o644)
    gate.clock.later_s = 40.0
    assert await gate.asks(issuer.token())
    issuer.keys = {"k2": curve_key()}
    file.write_bytes(issuer.jwks)
    gate.clock.later_s = 60.0
    assert await gate.asks(issuer.token())
    assert issuer.asked == 0
    await gate.egress.close()


async def test_an_issuer_over_tls_is_believed_by_its_own_authority_only(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tmp_path.joinpath(name).mkdir()
    authority, stranger = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    pair = authority.issue()
    issuer = TokenIssuer(k1=RSA)
    issuer.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issuer.tls.load_cert_chain(pair.chain, pair.key)
    async with issuer:
        for trusted, is_believed in ((authority, True), (stranger, False), (None, False)):
            more = "" if trusted is None else f'ca_file = "{trusted.file}"'
            gate = Gate(issuer, tmp_path, issuer.settings(more=more))
            if is_believed:
                assert await gate.asks(issuer.token())
            else:
                with pytest.raises(Unavailable):
                    await gate.asks(issuer.token())
            await gate.egress.close()
    assert issuer.asked == 1
