"""The targets as policy sees them at one moment, for each scope of keys.

A new board is built when a probe changes an availability; a board itself never changes.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property

import msgspec

from gateway.types import ChatRequest, Purpose, Target
from policies.facts import TargetFacts


Scope = frozenset[str] | None
"""Targets that a key may use; None for all."""


NO_CREDENTIAL = "no credential"
"""Why a target cannot be called until somebody acts. A credential that its source may still
provide, or provide again, is only missing for now, and gets another reason."""


class TargetBoard:
    """Targets as policy sees them, with their availability now; cached per key scope.

    A new board is built when a probe changes an availability: a request sees exactly one.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        unavailable: Mapping[str, str],
        first_token_ms: Mapping[str, int] | None = None,
    ) -> None:
        self.targets = targets
        self.unavailable = unavailable
        self.first_token_ms = first_token_ms or {}
        """Measured recently; empty if no policy orders by it."""
        self.purposes = {name: target.purpose for name, target in targets.items()}
        """What each target is for."""
        self.served = frozenset(self.purposes.values())
        """All purposes that some target has."""
        self._by_scope: dict[tuple[Scope, Purpose | None], tuple[TargetFacts, ...]] = {}
        self._alike: dict[tuple[Scope, str], tuple[TargetFacts, ...]] = {}

    @cached_property
    def digest(self) -> str:
        """A digest of what an unlimited key sees, by which records name their decision's board."""
        described = msgspec.json.encode(self.facts_for(None), order="deterministic")
        return hashlib.sha256(described).hexdigest()[:32]

    def facts_for(self, models: Scope, purpose: Purpose | None = None) -> tuple[TargetFacts, ...]:
        """What policy may consider for a key of this model scope, for one purpose or for all."""
        known = self._by_scope.get((models, purpose))
        if known is None:
            known = tuple(
                self._facts(target, models)
                for target in self.targets.values()
                if purpose in {None, target.purpose}
            )
            self._by_scope[models, purpose] = known
        return known

    def facts_asked(self, models: Scope, request: ChatRequest) -> tuple[TargetFacts, ...]:
        """What policy may consider for a request; of vectors, those that its model makes."""
        purpose, named = request.purpose, request.model
        known = self.facts_for(models, purpose)
        if purpose != "embedding" or named not in self.purposes:
            return known
        if (models, named) not in self._alike:
            self._alike[models, named] = comparable(known, named)
        return self._alike[models, named]

    def unavailable_reason(self, target: str) -> str:
        """Empty if the target can be called."""
        return self.unavailable.get(target, "")

    def _facts(self, target: Target, models: frozenset[str] | None) -> TargetFacts:
        reason = self.unavailable.get(target.name, "")
        return TargetFacts(
            name=target.name,
            provider=target.provider,
            jurisdiction=target.jurisdiction,
            in_house=target.in_house,
            tier=target.tier,
            input_price_microusd_per_mtok=target.price.input_microusd_per_mtok,
            output_price_microusd_per_mtok=target.price.output_microusd_per_mtok,
            context_window_tokens=target.context_window_tokens,
            output_tokens_max=target.output_tokens_max,
            capabilities=target.capabilities,
            available=not reason,
            unavailable_reason=reason,
            permitted_to_key=models is None or target.name in models,
            cache_read_price_microusd_per_mtok=target.price.cache_read_microusd_per_mtok,
            first_token_ms=self.first_token_ms.get(target.name, 0),
            assurances=target.assurances,
            seals=target.seals,
            vectors=target.model if target.purpose == "embedding" else "",
        )


def comparable(targets: tuple[TargetFacts, ...], named: str) -> tuple[TargetFacts, ...]:
    """Targets with the same vectors as the named one; all of them if it makes none.

    A substitute with other vectors would spoil an index, and nobody could see it.
    """
    vectors = next((each.vectors for each in targets if each.name == named), "")
    return tuple(each for each in targets if each.vectors == vectors) if vectors else targets
