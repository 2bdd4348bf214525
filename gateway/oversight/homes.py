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
"""The route, and the label that engines have where nobody chose another."""
MANAGED: Final = "managed"
REFUSED: Final = "refused"


class Homes(Struct, frozen=True):
    """Of an installation as it is configured now.

    What nobody can tell counts as managed: a label that nobody has any more, and a provider that is
    gone where its label is shared.
    """

    labels: frozenset[str] = frozenset({IN_HOUSE})
    """Jurisdictions in which nothing but engines is."""
    shared: frozenset[str] = frozenset()
    """Jurisdictions in which managed APIs are as well."""
    providers: frozenset[str] = frozenset()
    """Of all that are in the house."""

    def has(self, jurisdiction: str, provider: str) -> bool:
        """Whether what a record says was reached is in the house."""
        if jurisdiction in self.labels:
            return True
        return jurisdiction in self.shared and provider in self.providers

    def place_of(self, jurisdiction: str, provider: str) -> str:
        """`in-house` or `managed`; empty where nothing was reached."""
        if not jurisdiction:
            return ""
        return IN_HOUSE if self.has(jurisdiction, provider) else MANAGED

    def route_of(self, status: str, jurisdiction: str, provider: str) -> str:
        """Like `place_of`, and `refused` of what policy or a limit refused."""
        return REFUSED if status == REFUSED else self.place_of(jurisdiction, provider)


BY_LABEL: Final = Homes()
"""Where no provider is configured."""


def homes_of(providers: Mapping[str, ProviderSettings]) -> Homes:
    """What is home among these, by their kinds."""
    inside = {name for name, each in providers.items() if each.is_in_house}
    home = {IN_HOUSE, *(providers[name].jurisdiction for name in inside)}
    outside = {each.jurisdiction for each in providers.values() if not each.is_in_house}
    return Homes(frozenset(home - outside), frozenset(home & outside), frozenset(inside))
