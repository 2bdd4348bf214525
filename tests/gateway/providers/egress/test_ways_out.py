"""Ways out of one's own: whom a provider trusts, what it is shown, and what is never shared."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import UpstreamUnreachable
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.endpoint import parse_endpoint, parse_proxy
from gateway.providers.egress.pool import Pool
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.way_out import WayOut
from tests.certificates import Authority
from tests.forward_proxy import ForwardProxy
from tests.gateway.providers.samples import HOME, make_call
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def house(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "house")


@pytest.fixture
async def upstream(house: Authority) -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream(tls=house.server("127.0.0.1")) as running:
        yield running


@pytest.fixture
async def egress(house: Authority) -> AsyncIterator[Egress]:
    """It trusts the house where a provider has no trust of its own."""
    made = Egress(tls=house.trusting())
    yield made
    await made.close()


def way_of(egress: Egress, upstream: RecordingUpstream, way_out: WayOut | None) -> Route:
    endpoint = parse_endpoint("fake", upstream.url, HOME, way_out=way_out)
    return egress.route(endpoint, "/v1/messages", {})


async def call(egress: Egress, route: Route) -> bytes:
    reply = await egress.open(route, make_call())
    try:
        return await reply.read()
    finally:
        await reply.close()


def serials(upstream: RecordingUpstream) -> list[int]:
    return [request.connection for request in upstream.requests]


async def test_no_connection_is_shared_with_another_way_out(
    egress: Egress, upstream: RecordingUpstream, house: Authority
) -> None:
    async with ForwardProxy() as proxy, ForwardProxy() as other_proxy:
        shown = house.issue()
        ways_out = [
            None,
            WayOut(tls=house.trusting()),
            WayOut(tls=house.trusting()),  # alike, and somebody else's
            WayOut(tls=house.trusting(shown)),
            WayOut(parse_proxy("a", proxy.url, None)),
            WayOut(parse_proxy("a", proxy.url, None)),
            WayOut(parse_proxy("a", other_proxy.url, None)),
            WayOut(parse_proxy("a", other_proxy.url, None), house.trusting(shown)),
        ]
        routes = [way_of(egress, upstream, way_out) for way_out in ways_out]
        for route in [*routes, *routes, *reversed(routes)]:
            assert b"Hello" in await call(egress, route)

        numbers = list(range(1, len(routes) + 1))
        assert serials(upstream) == [*numbers, *numbers, *reversed(numbers)]
        assert (proxy.tunnels, other_proxy.tunnels) == (2, 2)
        await egress.close()


async def test_what_one_provider_trusts_no_other_does(
    egress: Egress, upstream: RecordingUpstream, tmp_path: Path, house: Authority
) -> None:
    """Also not while a connection to the very same place is kept."""
    elsewhere = Authority(tmp_path, "elsewhere")
    trusting = way_of(egress, upstream, WayOut(tls=house.trusting()))
    doubting = way_of(egress, upstream, WayOut(tls=elsewhere.trusting()))
    assert b"Hello" in await call(egress, trusting)
    with pytest.raises(UpstreamUnreachable):
        await call(egress, doubting)
    assert b"Hello" in await call(egress, trusting)

    assert serials(upstream) == [1, 1]


async def test_an_upstream_that_wants_our_certificate_gets_it_and_nobody_else(
    house: Authority, tmp_path: Path
) -> None:
    ours = Authority(tmp_path, "ours")
    tls = house.server("127.0.0.1", wants_from=ours)
    async with RecordingUpstream(tls=tls) as upstream:
        egress = Egress(tls=house.trusting())
        known = way_of(egress, upstream, WayOut(tls=house.trusting(ours.issue())))
        stranger = way_of(egress, upstream, WayOut(tls=house.trusting(house.issue())))
        nobody = way_of(egress, upstream, None)
        assert b"Hello" in await call(egress, known)
        for route in (stranger, nobody):
            with pytest.raises(UpstreamUnreachable):
                await call(egress, route)
        assert b"Hello" in await call(egress, known)
        await egress.close()

        assert len(upstream.requests) == 2


async def test_our_certificate_is_shown_through_a_tunnel_too(
    house: Authority, tmp_path: Path
) -> None:
    ours = Authority(tmp_path, "ours")
    tls = house.server("127.0.0.1", wants_from=ours)
    async with RecordingUpstream(tls=tls) as upstream, ForwardProxy() as proxy:
        egress = Egress()
        proxied = parse_proxy("fake", proxy.url, None)
        known = WayOut(proxied, house.trusting(ours.issue()))
        assert b"Hello" in await call(egress, way_of(egress, upstream, known))
        with pytest.raises(UpstreamUnreachable):
            await call(egress, way_of(egress, upstream, WayOut(proxied, house.trusting())))
        await egress.close()

        assert len(upstream.requests) == 1
        assert proxy.tunnels == 2


async def test_places_of_former_ways_out_are_not_kept_once_they_are_empty(
    house: Authority,
) -> None:
    pool, url = Pool(GuardedResolver(), None, 4, 15.0), "https://127.0.0.1:1"
    straight = parse_endpoint("a", url, HOME)
    kept = pool.origin(straight, straight.place)
    await kept.wait_for_turn()
    for _ in range(50):
        renewed = parse_endpoint("a", url, HOME, way_out=WayOut(tls=house.trusting()))
        pool.origin(renewed, renewed.place)

    assert len(pool._origins) == 2
    assert pool.origin(straight, straight.place) is kept


def test_a_way_out_that_believes_anybody_is_none() -> None:
    blind = ssl.create_default_context()
    blind.check_hostname = False
    with pytest.raises(ValueError, match="verify"):
        WayOut(tls=blind)
    blind.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match="verify"):
        WayOut(tls=blind)
