"""Targets, calls and credentials that the tests of the way out share."""

import secrets

import msgspec

from gateway.ports import UpstreamCall
from gateway.price import Price
from gateway.secrets.secret import Secret
from gateway.types import Target


HOME = "home"
PRICE = Price(1_000_000, 5_000_000, 100_000, 1_250_000, 2_000_000, 50, "test", "2026-11-21")


def make_target(name: str = "scripted/one", jurisdiction: str = HOME) -> Target:
    return Target(
        name=name,
        provider="somebody",
        model="fake-model",
        jurisdiction=jurisdiction,
        in_house=False,
        tier="mid",
        price=PRICE,
        context_window_tokens=1000,
        output_tokens_max=100,
        capabilities=frozenset({"streaming"}),
    )


def make_call(
    *,
    stream: bool = False,
    clearance: frozenset[str] = frozenset({HOME}),
    target: Target | None = None,
    deadline_s: float = 30.0,
) -> UpstreamCall:
    body = {"model": "fake-model", "max_tokens": 5, "messages": [], "stream": stream}
    return UpstreamCall(
        target=target or make_target(),
        body=msgspec.json.encode(body),
        stream=stream,
        request_id="req-1",
        clearance=clearance,
        deadline_s=deadline_s,
    )


def make_secret() -> Secret[str]:
    """A credential that exists only in this run."""
    return Secret(f"test-{secrets.token_hex(16)}")
