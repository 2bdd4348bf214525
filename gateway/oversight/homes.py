"""Decides what counts as in-house: labels, providers and recorded requests. Pure.

There is one answer for all parts. A provider is in the house by its kind, whatever its label says.
A record has label and provider as they were. Its label decides, unless engines and managed APIs
share that label; then the provider does.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from gateway.configuration.settings import ProviderSettings


IN_HOUSE: Final = "in-house"
"""The route, and the default label of engines."""
MANAGED: Final = "managed"
REFUSED: Final = "refused"


class Homes(Struct, frozen=True):
    """What is in-house in the current configuration.

    Doubtful cases count as managed: a label that nothing has any more, and a removed provider with
    a shared label.
    """

    labels: frozenset[str] = frozenset({IN_HOUSE})
    """Jurisdictions with nothing but engines."""
    shared: frozenset[str] = frozenset()
    """Jurisdictions that also have managed APIs."""
    providers: frozenset[str] = frozenset()
    """The names of all in-house providers."""

    def has(self, jurisdiction: str, provider: str) -> bool:
        """Whether the place that a record names is in-house."""
        if jurisdiction in self.labels:
            return True
        return jurisdiction in self.shared and provider in self.providers

    def place_of(self, jurisdiction: str, provider: str) -> str:
        """`in-house` or `managed`; empty if nothing was reached."""
        if not jurisdiction:
            return ""
        return IN_HOUSE if self.has(jurisdiction, provider) else MANAGED

    def route_of(self, status: str, jurisdiction: str, provider: str) -> str:
        """Like `place_of`, but `refused` if policy or a limit refused the request."""
        return REFUSED if status == REFUSED else self.place_of(jurisdiction, provider)


BY_LABEL: Final = Homes()
"""Used if no provider is configured."""


def homes_of(providers: Mapping[str, ProviderSettings]) -> Homes:
    """The in-house labels and providers among these, by their kinds."""
    inside = {name for name, each in providers.items() if each.is_in_house}
    home = {IN_HOUSE, *(providers[name].jurisdiction for name in inside)}
    outside = {each.jurisdiction for each in providers.values() if not each.is_in_house}
    return Homes(frozenset(home - outside), frozenset(home & outside), frozenset(inside))
