"""Probes in-house engines: whether they can answer and what they serve; tells the board.

Managed upstreams are never probed on a timer: their breakers learn from real traffic, and a probe
would cost their quota. It knows providers by their port only.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from gateway.errors import UpstreamFailed
from gateway.money.catalogue import refine_target
from gateway.ports import ModelHost, Provider, ServedModel
from gateway.routing.board import TargetBoard
from gateway.telemetry import Event, logger
from gateway.types import Target


NOT_SERVED = "the engine does not serve this model"

Served = Mapping[str, ServedModel]


class Prober:
    """Keeps one board up to date; call `probe` from the worker loop."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        hosts: Mapping[str, ModelHost],
        targets: tuple[Target, ...],
        publish: Callable[[], None],
    ) -> None:
        """`hosts` are the providers to ask."""
        self._providers = providers
        self._hosts = hosts
        self._targets = targets
        self._publish = publish
        self._down: dict[str, str] = {}
        self._served: dict[str, Served] = {}
        self._first_token_ms: Mapping[str, int] = {}
        self._log = logger()

    def board(self) -> TargetBoard:
        """Targets as they are known now; one that has not been asked yet counts as available."""
        targets: dict[str, Target] = {}
        unavailable: dict[str, str] = {}
        for configured in self._targets:
            target, reason = self._known(configured)
            targets[target.name] = target
            if reason:
                unavailable[target.name] = reason
        return TargetBoard(targets, unavailable, self._first_token_ms)

    def measured(self, first_token_ms: Mapping[str, int]) -> None:
        """Take recent speeds of targets, on a coarse scale; publish a new board on a change."""
        if first_token_ms != self._first_token_ms:
            self._first_token_ms = first_token_ms
            self._publish()

    def retarget(self, targets: tuple[Target, ...]) -> None:
        """The same targets at other prices; published at once."""
        self._targets = targets
        self._publish()

    def said(self, provider: str) -> tuple[str, tuple[str, ...]] | None:
        """Why a host cannot be called, empty if it can, and its models; None before it answered."""
        if provider not in self._served:
            return None
        return self._down.get(provider, ""), tuple(self._served[provider])

    def serving(self, provider: str) -> Collection[ServedModel]:
        """What a host serves while it can be called."""
        return () if self._down.get(provider) else self._served.get(provider, {}).values()

    async def probe(self) -> None:
        """Ask all at once, so that none hides another; publish a new board if an answer changed."""
        changed = False
        hosts = dict(self._hosts)
        answers = await asyncio.gather(*map(_ask, hosts.values()))
        for name, (reason, served) in zip(hosts, answers, strict=True):
            if reason == self._down.get(name, "") and served == self._served.get(name, {}):
                continue
            changed = True
            self._served[name] = served
            if reason:
                self._down[name] = reason
                self._log.warning(Event.PROBE_FAILED, provider=name, reason=reason)
            else:
                self._down.pop(name, None)
                self._log.info(Event.PROBE_RECOVERED, provider=name, count=len(served))
        if changed:
            self._publish()

    def _known(self, target: Target) -> tuple[Target, str]:
        """A target with what its engine reports, and why it cannot be called."""
        reason = self._providers[target.provider].unavailable_reason
        reason = reason or self._down.get(target.provider, "")
        served = self._served.get(target.provider)
        if reason or served is None:
            return target, reason
        model = served.get(target.model)
        if model is None:
            return target, NOT_SERVED
        told = model.told_capabilities
        return refine_target(target, model.digest, model.window_tokens, told), ""


async def _ask(host: ModelHost) -> tuple[str, Served]:
    if reason := await host.probe():
        return reason, {}
    try:
        return "", {model.id: model for model in await host.list_models()}
    except UpstreamFailed as error:
        return error.message, {}
