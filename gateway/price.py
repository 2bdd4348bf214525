"""The price of a model in integer micro-dollars, for each service tier."""

from msgspec import Struct, structs


PLAIN_TIERS = frozenset({"", "auto", "default", "standard", "standard_only"})
"""Service tiers at the price of the catalogue."""
TIERS_ASKED = frozenset({"service_tier", "speed", "inference_geo"})
"""Fields of a request that change its price: how fast it is served, and in which country."""
ANYWHERE = "global"
"""The place of inference that the catalogue's prices are for."""
PLAIN_PLACES = frozenset({"", ANYWHERE, "not_available"})
"""What an answer says of where it was made, if that costs nothing extra."""
US = "us"
ELSEWHERE = "other"
"""A place that is unknown here."""
_STANDARD_PERCENT = 100


class Price(Struct, frozen=True):
    """Integer micro-dollars per million tokens, each with the date and place it was read."""

    input_microusd_per_mtok: int
    output_microusd_per_mtok: int
    cache_read_microusd_per_mtok: int
    cache_write_microusd_per_mtok: int
    cache_write_1h_microusd_per_mtok: int
    batch_percent: int
    """The price of a batch request, in percent of the above (50 = half)."""
    source: str
    as_of: str
    priority_percent: int = 0
    """The price of the faster tier, in percent of the above; 0 where it is not known."""
    flex_percent: int = 0
    """Likewise for the slower tier."""
    web_search_microusd: int = 0
    """The price of one search by the vendor, besides its tokens; 0 where it is not known."""
    unbilled_tools: bool = False
    """Whether tools that run at the vendor may be used although their price is not known here."""
    long_from_tokens: int = 0
    """A request with more input than this is long, and all of it costs more; 0 for never."""
    long_input_percent: int = 100
    """The price of its input then, new, read from a cache or written, in percent of the above."""
    long_output_percent: int = 100
    """Likewise for its output."""
    us_percent: int = 0
    """The price of inference only in the United States, in percent of the above; 0 for unknown."""

    def of_length(self, input_tokens: int) -> "Price":
        """The price of each token of a request with this much input."""
        if not 0 < self.long_from_tokens < input_tokens:
            return self
        read, written = self.long_input_percent, self.long_output_percent
        return structs.replace(
            self,
            input_microusd_per_mtok=_share(self.input_microusd_per_mtok, read),
            output_microusd_per_mtok=_share(self.output_microusd_per_mtok, written),
            cache_read_microusd_per_mtok=_share(self.cache_read_microusd_per_mtok, read),
            cache_write_microusd_per_mtok=_share(self.cache_write_microusd_per_mtok, read),
            cache_write_1h_microusd_per_mtok=_share(self.cache_write_1h_microusd_per_mtok, read),
            long_from_tokens=0,
        )

    def percent_of(self, service_tier: str) -> int:
        """The price of a tier in percent of the standard one; 0 where it is not known."""
        if service_tier == "priority":
            return self.priority_percent
        if service_tier == "flex":
            return self.flex_percent
        if service_tier == "batch":
            return self.batch_percent
        return _STANDARD_PERCENT if service_tier in PLAIN_TIERS else 0

    def percent_in(self, place: str) -> int:
        """The price of inference in a place, in percent of that anywhere; 0 where it is not known.

        What was made in another country than those known here is taken to cost no less.
        """
        if place in PLAIN_PLACES:
            return _STANDARD_PERCENT
        return self.us_percent if place in {US, ELSEWHERE} else 0


def _share(microusd_per_mtok: int, percent: int) -> int:
    return -(-microusd_per_mtok * percent // _STANDARD_PERCENT)


def paid_place(told: str | None) -> str:
    """The one country that an answer was bound to: empty for none, or `other`."""
    if told is None or told in PLAIN_PLACES:
        return ""
    return told if told == US else ELSEWHERE


def paid_tier(asked: str) -> str:
    """The name under which a service tier is priced; `fast` is OpenAI's newer word for one."""
    return "priority" if asked == "fast" else asked
