"""Adapter for in-house engines, at a loopback or private address: the sovereign place.

An engine is told on whose behalf a call comes, so that prefixes are shared only inside a tenant and
the higher service tiers go first: our own engine by headers, others by fields of the body if they
have such fields. What a caller wrote into those fields never gets there.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from gateway.dialects.bodies.body import join, patch, split
from gateway.errors import ConfigurationInvalid, UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from gateway.pool.capabilities import ENGINES, Capability
from gateway.pool.exact import CHAIN_MAX, NEWS_MAX, CacheChain, CacheReport
from gateway.pool.figures import Figures, figures_of
from gateway.pool.listening import check_address
from gateway.ports import UpstreamCall, unwatched
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.reply import EgressReply
from gateway.providers.http_provider import (
    COMPATIBLE_PATHS,
    HTTP_OK,
    HttpProvider,
    describe_status,
)
from gateway.types import DialectName
from policies.facts import SERVICE_TIERS


Told = TypeVar("Told")
ROUTES_MAX = 256
GREEDY_S = 30.0
SILENCES_MAX: Final = 4
"""How many probes in a row may stay unanswered before an engine that was well counts as down.

An engine says nothing for a while if it reads a long prompt, or if its own health check queues
behind one. With a probe's deadline this makes 20 seconds, after which engines that watch themselves
report that they are stuck.
"""
CACHE_WAIT_S = 5.0
UNKNOWN_FORM = "it answers in an unknown form"
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
VALUES_MAX: Final = 100_000
TOKENS_MAX: Final = 1_200_000
METRICS_BYTES_MAX: Final = 4 * 1024 * 1024
SHORT_METRICS_BYTES_MAX: Final = 32 * 1024
"""Longer ones are read off the loop: each line of them is looked at."""
_PRIORITIES: Final[Mapping[str, bytes]] = {
    tier: b"%d" % place for place, tier in enumerate(SERVICE_TIERS)
}
"""Engines that schedule by priority serve the lower number first."""
_OURS_TO_SAY: Final = ("cache_salt", "extra_key", "priority")
"""Fields that decide which cached prefixes a request may hit, and which request goes first."""


class EngineModel(Struct, frozen=True):
    """What the engine reports about a model it serves."""

    id: str
    digest: str = ""
    """Weights, tokenizer and template in one hash; empty if the engine does not report it."""
    context_window_tokens: int = 0
    """0 if the engine does not report it."""
    max_model_len: int = 0
    """vLLM's and SGLang's name for the same."""
    capabilities: object = None
    """Our engine's list of what the model can do; other engines use the field differently."""
    precision: str = ""
    """Number formats and hardware of our engine: with others, answers may differ."""

    @property
    def told_capabilities(self) -> frozenset[str]:
        told = self.capabilities if isinstance(self.capabilities, list) else ()
        return frozenset(word for word in told if isinstance(word, str))

    @property
    def window_tokens(self) -> int:
        return self.context_window_tokens or self.max_model_len


class _ModelList(Struct, frozen=True):
    data: tuple[EngineModel, ...]


class _Message(Struct, frozen=True):
    content: str


class _Choice(Struct, frozen=True):
    message: _Message


class _Answer(Struct, frozen=True):
    choices: tuple[_Choice, ...]


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise for content of another form, not in UTF-8, or nested too deeply."""

_ANSWER = msgspec.json.Decoder(_Answer)
_DECODER = msgspec.json.Decoder(_ModelList)


class EngineProvider(HttpProvider):
    """OpenAI-compatible HTTP that also reports its identity and whether it is ready."""

    path: ClassVar[str] = "/v1/chat/completions"
    other_paths: ClassVar[Mapping[DialectName, str]] = COMPATIBLE_PATHS
    needs_credential: ClassVar[bool] = False
    in_house: ClassVar[bool] = True

    def __init__(self, config: ProviderConfig, egress: Egress) -> None:
        super().__init__(config, egress)
        self._config = config
        self._headers = self.headers(config.revealed_credential)
        self.capability = _capability(config)
        self._ready_route = self._make_route(config, self.capability.health_path, self._headers)
        self._routes: dict[tuple[str, ...], Route] = {}
        self._models: tuple[EngineModel, ...] = ()
        self._silences = 0
        self._news_route = self._make_route(config, "/cache/events", self._headers)
        self._tokenize_route = self._make_route(config, "/tokenize", self._headers)
        self._check_events()
        metrics = self.capability.metrics_path
        self._metrics_route = self._make_route(config, metrics, self._headers) if metrics else None

    @property
    def event_addresses(self) -> tuple[str, str]:
        """Where its KV events are published, and where they are replayed; empty if nowhere."""
        return self._config.events, self._config.events_replay

    def salt_of(self, call: UpstreamCall) -> str:
        """The salt that separates this caller's cached prefixes; empty if the engine takes none."""
        return self._salt(call.tenant, call.data_class) if self.capability.cache_salt else ""

    async def tokens_of(self, call: UpstreamCall) -> Sequence[int]:
        """The tokens of the call's conversation.

        Raises:
            UpstreamFailed: it does not report them.
            SovereigntyViolation: see `Egress.open`.
        """
        asked = structs.replace(call, leaves=unwatched)  # The call itself is not sent yet.
        reply = await self._egress.open(self._tokenize_route, asked, _conversation(call))
        return (await _told(reply, _TOKENS, values_max=TOKENS_MAX)).tokens

    @property
    def tells_cache(self) -> bool:
        """Whether it reports exactly what its prefix cache holds."""
        return self.capability.exact

    async def cache_news(self, epoch: str, since: int) -> CacheReport:
        """See `gateway.pool.exact.CacheTeller`."""
        asked = msgspec.json.encode({"epoch": epoch, "since": since, "wait_s": CACHE_WAIT_S})
        reply = await self._egress.tell(self._news_route, asked, 2 * CACHE_WAIT_S)
        return await _told(reply, _REPORT, NEWS_MAX)

    async def chain_of(self, call: UpstreamCall) -> CacheChain:
        """See `gateway.pool.exact.CacheTeller`; asked on behalf of the call's own caller."""
        route = self._caller_route(call, "/cache/chain")
        asked = structs.replace(call, leaves=unwatched)
        reply = await self._egress.open(route, asked, _conversation(call))
        return await _told(reply, _CHAIN, CHAIN_MAX)

    @property
    def kind(self) -> str:
        """The kind of engine: only engines of one kind have to give identical answers."""
        return self._config.engine

    async def figures(self) -> Figures | None:
        """Its load; None if it does not report it.

        Raises:
            UpstreamFailed: it cannot be reached.
        """
        if self._metrics_route is None:
            return None
        status, body = await self._ask(self._metrics_route)
        if status != HTTP_OK:
            return None
        if len(body) > METRICS_BYTES_MAX:
            raise UpstreamMalformed(UNKNOWN_FORM)
        read = partial(figures_of, body.decode("utf-8", "replace"), self.capability)
        return await asyncio.to_thread(read) if len(body) > SHORT_METRICS_BYTES_MAX else read()

    async def greedy(self, model: str, question: str, tokens: int) -> str:
        """See `gateway.pool.parity.Greedy`."""
        asked = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": tokens,
        }
        reply = await self._egress.tell(self._route, msgspec.json.encode(asked), GREEDY_S)
        answer = await _told(reply, _ANSWER)
        if not answer.choices:
            raise UpstreamMalformed(UNKNOWN_FORM)
        return answer.choices[0].message.content

    async def open(self, call: UpstreamCall) -> EgressReply:
        """See `gateway.ports.Provider`; an engine that takes no headers gets fields."""
        self._require_callable(call)
        return await self._egress.open(self.route_for(call), call, self._body(call))

    def _check_events(self) -> None:
        for address in self.event_addresses:
            check_address(self.name, address)
        if any(self.event_addresses) and not self.capability.events:
            reason = f"this kind of engine ({self.kind}) publishes none that can be read"
            raise ConfigurationInvalid(f"providers.{self.name}", "events", reason)

    def route_for(self, call: UpstreamCall) -> Route:
        """The prepared route that says on whose behalf the call comes; few are ever made."""
        if not self.capability.caller_headers:
            return super().route_for(call)
        return self._caller_route(call, self.other_paths.get(call.dialect, self.path))

    def _caller_route(self, call: UpstreamCall, path: str) -> Route:
        caller = path, call.tenant, call.data_class, call.service_tier
        route = self._routes.get(caller)
        if route is None:
            told = {
                "x-gatewright-tenant": call.tenant,
                "x-gatewright-data-class": call.data_class,
                "x-gatewright-tier": call.service_tier,
            }
            headers = {**self._headers, **{name: text for name, text in told.items() if text}}
            route = self._make_route(self._config, path, headers)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[caller] = route
        return route

    def _body(self, call: UpstreamCall) -> bytes:
        """The call's body with our salt and priority; a caller's own are removed."""
        able = self.capability
        if able.caller_headers:
            return call.body
        changes: dict[str, bytes | None] = dict.fromkeys(_OURS_TO_SAY)
        if able.cache_salt and call.tenant:
            changes["cache_salt"] = b'"%b"' % self._salt(call.tenant, call.data_class).encode()
        if able.priority and self._config.priorities:
            changes["priority"] = _PRIORITIES.get(call.service_tier, b"1")
        return patch(call.body, changes)

    def _salt(self, tenant: str, data_class: str) -> str:
        """Equal for one tenant and class on every worker; it cannot be guessed without the key."""
        key = hashlib.sha256(self._config.revealed_credential.encode()).digest()
        named = f"{tenant}\0{data_class}".encode()
        return hashlib.blake2b(named, key=key, digest_size=24).hexdigest()

    async def probe(self) -> str:
        """Good if it is ready and reports what it serves, or if it may only be busy."""
        try:
            status, _ = await self._ask(self._ready_route)
            if status == HTTP_OK:
                self._models = await self._listed()
                self._silences = 0
                return "" if self._models else "it serves no model"
            reason = f"it is not ready (HTTP {status})"
        except UpstreamTimeout as error:
            return self._unanswered(error)
        except UpstreamFailed as error:
            reason = error.message
        self._models = ()
        return reason

    async def list_models(self) -> tuple[EngineModel, ...]:
        """Identity and window of each model, for `gateway.money.catalogue.refine_target`.

        While probes go unanswered: its last answer.

        Raises:
            UpstreamFailed: it cannot be reached, refuses, or gives another answer.
        """
        if self._silences and self._models:
            return self._models
        try:
            self._models = await self._listed()
        except UpstreamTimeout as error:
            if self._unanswered(error):
                raise
        return self._models

    def _unanswered(self, error: UpstreamTimeout) -> str:
        """Why it cannot be called; empty while it may only be busy."""
        self._silences += 1
        if error.is_connected and self._silences <= SILENCES_MAX and self._models:
            return ""
        self._models = ()
        return error.message

    async def _listed(self) -> tuple[EngineModel, ...]:
        status, body = await self._ask(self._models_route)
        if status != HTTP_OK:
            raise UpstreamMalformed(describe_status(status))
        _check(body)
        try:
            return _DECODER.decode(body).data
        except _UNREADABLE as error:
            raise UpstreamMalformed("it lists its models in an unknown form") from error


class _Tokens(Struct, frozen=True):
    tokens: tuple[int, ...]


_TOKENS = msgspec.json.Decoder(_Tokens)


_REPORT = msgspec.msgpack.Decoder(CacheReport)
_CHAIN = msgspec.msgpack.Decoder(CacheChain)


_PROMPT_MAKERS: Final = frozenset({"model", "messages", "tools", "prompt"})


def _conversation(call: UpstreamCall) -> bytes:
    """The part of a call's body that makes its prompt."""
    fields = split(call.body).items()
    return join({key: value for key, value in fields if key in _PROMPT_MAKERS})


async def _told(
    reply: EgressReply,
    decoder: msgspec.json.Decoder[Told] | msgspec.msgpack.Decoder[Told],
    bytes_max: int = ANSWER_BYTES_MAX,
    values_max: int = VALUES_MAX,
) -> Told:
    """An engine's answer to a question of ours; raises UpstreamFailed.

    It is decoded in one go, during which nothing else is served.
    """
    try:
        body = await reply.read()
    finally:
        await reply.close()
    if reply.status != HTTP_OK:
        raise UpstreamMalformed(describe_status(reply.status))
    _check(body, bytes_max, values_max)
    try:
        return decoder.decode(body)
    except _UNREADABLE as error:
        raise UpstreamMalformed(UNKNOWN_FORM) from error


def _check(body: bytes, bytes_max: int = ANSWER_BYTES_MAX, values_max: int = VALUES_MAX) -> None:
    """Raises UpstreamMalformed if decoding it would take long."""
    if len(body) > bytes_max or body.count(b",") > values_max:
        raise UpstreamMalformed(UNKNOWN_FORM)


def _capability(config: ProviderConfig) -> Capability:
    found = ENGINES.get(config.engine)
    if found is None:
        reason = f"must be one of {', '.join(ENGINES)}"
        raise ConfigurationInvalid(f"providers.{config.name}", "engine", reason)
    return found
