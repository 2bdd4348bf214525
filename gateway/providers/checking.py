"""Tests a connection in four steps, as real calls take them: name, connection, credential, call.

It uses the adapter, the resolver, the trust store and the credential that requests use, and the
egress checks jurisdictions as always. The content sent is ours, nobody's prompt, and asks for one
token. Behind a proxy the name looked up is the proxy's, which looks up the upstream's itself, and
the connection is a tunnel with the upstream's TLS inside.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from gateway.clock import Clock
from gateway.errors import (
    GatewrightError,
    SovereigntyViolation,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnpaid,
)
from gateway.money.catalogue import cost
from gateway.oversight.checkup import Checkup, Code, Step, StepName, Verdict, skipped
from gateway.ports import Dialect, Provider, UpstreamCall
from gateway.providers.egress.pool import part_s
from gateway.providers.egress.tunnel import PROXY_DENIED, ProxyFault
from gateway.providers.egress.way_out import WayOut
from gateway.providers.http_provider import HTTP_OK, HttpProvider
from gateway.secrets.validity import day, next_end
from gateway.types import Completion, DialectName, Target


LIST_S: Final = 10.0
CALL_S: Final = 30.0
ADDRESSES_MAX: Final = 3
_DENIED: Final = (401, 403)
_QUOTA: Final = (402, 429)
_UNLISTED: Final = (404, 405, 501)
_SERVER_ERROR_MIN: Final = 500
_QUESTION: Final = "Hi"
_STEPS: Final[tuple[StepName, ...]] = ("name", "connection", "credential", "call")

Ending = tuple[Verdict, Code, str]
Told = Callable[[Checkup], Awaitable[None]]


class Checker:
    """Runs the steps for one provider and one of its targets."""

    def __init__(
        self,
        provider: Provider,
        target: Target | None,
        dialects: Mapping[DialectName, Dialect],
        clock: Clock,
    ) -> None:
        self._provider = provider
        self._target = target
        self._dialects = dialects
        self._clock = clock
        self._addresses: tuple[str, ...] = ()
        self._answer: Completion | None = None

    async def run(self, told: Told) -> Checkup:
        """Run all steps, or those up to the first that fails; `told` gets each as it ends."""
        steps: tuple[Step, ...] = ()
        provider = self._provider
        takes: dict[StepName, Callable[[], Awaitable[Ending]]] = {}
        if isinstance(provider, HttpProvider):
            takes["name"] = partial(self._name, provider)
            takes["connection"] = partial(self._connection, provider)
            takes["credential"] = partial(self._credential, provider)
        else:
            steps = skipped("inside", *_STEPS[:-1])
        takes["call"] = self._call
        for name, take in takes.items():
            started_s = self._clock.monotonic_s()
            verdict, code, detail = await take()
            took_us = round((self._clock.monotonic_s() - started_s) * 1_000_000)
            steps += (Step(name, verdict, code, detail, took_us),)
            if verdict == "bad":
                steps += skipped("not_tried", *_STEPS[len(steps) :])
                break
            await told(Checkup(steps))
        return self._whole(steps)

    def _whole(self, steps: tuple[Step, ...]) -> Checkup:
        if self._answer is None or self._target is None:
            return Checkup(steps)
        usage = self._answer.usage
        return Checkup(
            steps,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_microusd=cost(self._target.price, usage),
        )

    async def _name(self, provider: HttpProvider) -> Ending:
        host, _ = provider.endpoint.first_hop
        is_proxy = provider.endpoint.proxy is not None
        try:
            self._addresses = (str(ipaddress.ip_address(host)),)
        except ValueError:
            pass
        else:
            return "good", "by_proxy" if is_proxy else "address", host
        try:
            async with asyncio.timeout(provider.connect_timeout_s):
                self._addresses = await provider.resolve()
        except TimeoutError:
            return "bad", "timeout", host
        except socket.gaierror as error:
            is_unknown = error.errno in (socket.EAI_NONAME, _NO_DATA)
            return "bad", "not_found" if is_unknown else "resolver_failed", host
        except OSError:
            return "bad", "out_of_reach", host
        found = ", ".join(self._addresses[:ADDRESSES_MAX])
        return "good", "by_proxy" if is_proxy else "ok", found

    async def _connection(self, provider: HttpProvider) -> Ending:
        """Connect to the first address that accepts, as the pool does; the last fault counts."""
        ending: Ending = ("bad", "unreachable", "")
        end_s = self._clock.monotonic_s() + provider.connect_timeout_s
        endpoint = provider.endpoint
        whose, (_, port) = "proxy " if endpoint.proxy else "", endpoint.first_hop
        for at, address in enumerate(self._addresses):
            left_s = end_s - self._clock.monotonic_s()
            try:
                async with asyncio.timeout(part_s(left_s, len(self._addresses) - at)):
                    await provider.reach(address)
            except (OSError, ssl.CertificateError) as error:
                ending = _fault(error, f"{whose}{address}:{port}")
            else:
                if soon := _ends_soon(endpoint.way_out, self._clock.utc_us()):
                    return "unsure", "ends_soon", soon
                if endpoint.proxy is not None:
                    return "good", "tunnelled", f"{whose}{address}:{port}"
                return "good", "plain" if endpoint.scheme == "http" else "ok", address
        return ending

    async def _credential(self, provider: HttpProvider) -> Ending:
        """Check the credential with the list of models, which costs nothing."""
        if provider.unavailable_reason:
            return "bad", "missing", ""
        try:
            status = await provider.list_status(LIST_S)
        except UpstreamFailed as error:
            return _failed(error)
        detail = f"HTTP {status}"
        if status == HTTP_OK:
            return "good", "ok" if provider.has_proof else "none_needed", detail
        if status in _DENIED:
            return "bad", "denied" if provider.has_proof else "missing", detail
        if status in _QUOTA:
            return "unsure", "quota", detail
        if status in _UNLISTED:
            return "unsure", "unlisted", detail
        return "unsure", "failing" if status >= _SERVER_ERROR_MIN else "rejected", detail

    async def _call(self) -> Ending:
        target = self._target
        if target is None:
            return "skipped", "no_target", ""
        try:
            async with asyncio.timeout(CALL_S):
                self._answer = await self._answered(target)
        except TimeoutError:
            return "bad", "timeout", ""
        except UpstreamRefused as error:
            return _refused(error)
        except UpstreamFailed as error:
            return _failed(error)
        except SovereigntyViolation:
            return "bad", "closed", target.jurisdiction
        except GatewrightError as error:
            return "bad", "rejected", error.message
        return "good", "ok", self._answer.model

    async def _answered(self, target: Target) -> Completion:
        provider, entry = self._provider, self._dialects[_asks_in(target)]
        request = entry.decode_request(question(target), "connection-test")
        dialect = self._dialects[provider.speaks(request, target)]
        body = dialect.encode_request(request, target, 1).body
        reply = await provider.open(
            UpstreamCall(
                target=target,
                body=body,
                stream=False,
                request_id=request.request_id,
                clearance=frozenset({target.jurisdiction}),
                deadline_s=CALL_S,
                dialect=dialect.name,
            )
        )
        try:
            raw = await reply.read()
            if reply.status != HTTP_OK:
                raise dialect.decode_error(reply.status, raw, reply.retry_after_s)
        finally:
            await reply.close()
        return dialect.decode_reply(raw)


def question(target: Target) -> bytes:
    """The complete request body: two letters, and one token of answer."""
    if target.purpose == "embedding":
        return msgspec.json.encode({"model": target.name, "input": _QUESTION})
    messages = [{"role": "user", "content": _QUESTION}]
    return msgspec.json.encode({"model": target.name, "messages": messages, "max_tokens": 1})


def _asks_in(target: Target) -> DialectName:
    return "openai_embeddings" if target.purpose == "embedding" else "openai_chat"


def _ends_soon(way_out: WayOut | None, now_us: int) -> str:
    """The provider's own files in which something has expired or will soon; empty if none."""
    found = []
    for setting, terms in (way_out.terms if way_out else {}).items():
        term = next_end(terms, now_us)
        if term is not None and term.told_from_us <= now_us:
            found.append(f"{setting}: {day(term.ends_us)}")
    return ", ".join(found)


def _fault(error: OSError | ssl.CertificateError, where: str) -> Ending:
    """The reason why a connection failed."""
    if isinstance(error, TimeoutError):
        return "bad", "timeout", where
    if isinstance(error, ProxyFault):
        return _untunnelled(error, where)
    if isinstance(error, ssl.SSLCertVerificationError):
        return "bad", "certificate", error.verify_message
    if isinstance(error, ssl.SSLError):
        # An alert is TLS: the other side understood ours and refuses it.
        return "bad", "broken" if "ALERT" in (error.reason or "") else "not_tls", where
    if isinstance(error, ConnectionRefusedError):
        return "bad", "refused", where
    if isinstance(error, ConnectionError):
        return "bad", "broken", where
    return "bad", "unreachable", where


def _untunnelled(fault: ProxyFault, where: str) -> Ending:
    if fault.status == PROXY_DENIED:
        return "bad", "proxy_denied", f"{where}: HTTP {fault.status}"
    if fault.status:
        return "bad", "proxy_refused", f"{where}: HTTP {fault.status}"
    return "bad", "proxy_broken", f"{where}: {fault}"


def _failed(error: UpstreamFailed) -> Ending:
    if isinstance(error, UpstreamTimeout):
        return "bad", "timeout", ""
    if isinstance(error, UpstreamMalformed):
        return "bad", "malformed", error.message
    return "bad", "broken", error.message


def _refused(error: UpstreamRefused) -> Ending:
    status = error.upstream_status
    detail = f"HTTP {status}"
    if status in _DENIED:
        return "bad", "denied", detail
    if status == 404 or error.upstream_code == "model_not_found":  # noqa: PLR2004
        return "bad", "model_unknown", detail
    if status in _QUOTA or isinstance(error, UpstreamUnpaid):
        return "bad", "quota", detail
    if status >= _SERVER_ERROR_MIN:
        return "bad", "failing", detail
    return "bad", "rejected", f"{detail}: {error.message}"


_NO_DATA: Final = getattr(socket, "EAI_NODATA", socket.EAI_NONAME)
