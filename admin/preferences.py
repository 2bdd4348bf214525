"""A reader's preferences for numbers, money and times: locale, time zone, currency and theme.

Kept in a cookie of their browser, because nobody else needs it. Stored values stay in micro-dollars
and microseconds UTC; this is only how they are shown, with the rate's date.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, lru_cache
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from babel import Locale, UnknownLocaleError
from babel.dates import (
    format_date,
    format_datetime,
    format_skeleton,
    format_time,
    format_timedelta,
)
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit
from markupsafe import Markup
from msgspec import Struct

from admin.asking import Asking
from gateway.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from gateway.configuration.sections import CurrencySettings
from gateway.obligations import Unit


COOKIE: Final = "gatewright_view"
COOKIE_BYTES_MAX: Final = 200
MICRO: Final = 1_000_000
LOCALES: Final = (
    *("en_US", "en_GB", "en_IN", "de_DE", "de_CH", "es_ES", "fr_FR", "hi_IN", "it_IT"),
    *("ja_JP", "nl_NL", "pl_PL", "pt_BR", "sv_SE"),
)
Theme = Literal["system", "light", "dark"]
THEMES: Final[tuple[Theme, ...]] = get_args(Theme)
CENT: Final = 10_000
KIBI: Final = 1_024
FIRST_US: Final = -62_135_510_400_000_000
LAST_US: Final = 253_402_214_400_000_000
"""The second day of the year 1, and the last of the year 9999: every zone has both."""
COUNTED_DAYS_MIN: Final = 6
COUNTED_DAYS_MAX: Final = 60
"""A span of six days to two months is said in days."""
_WRITTEN_TIME: Final = re.compile(r"(\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)")
WRITTEN_KEPT: Final = 8_192
"""So many numbers and amounts are kept as they were written last: pages repeat most of theirs."""


class Preferences(Struct, frozen=True):
    """A reader's ways; `currency` is USD or one of the configured ones."""

    locale: str = "en_US"
    zone: str = "UTC"
    currency: str = "USD"
    theme: Theme = "system"
    single_keys: bool = True
    """Whether single letters do something: who speaks to their machine presses them unawares."""
    rate: CurrencySettings | None = None
    """Of `currency`, if it is not USD."""

    def number(self, value: float) -> str:
        return _decimal(value, self.locale)

    def percent(self, share: float) -> str:
        """A share of one, to a tenth of a percent."""
        return format_percent(share, "#,##0.#%", locale=_locale(self.locale))

    def size(self, length_bytes: int) -> str:
        """A length in the unit that leaves one to four digits before the point."""
        amount, unit = float(length_bytes), "B"
        for larger in ("KiB", "MiB", "GiB", "TiB"):
            if amount < KIBI:
                break
            amount, unit = amount / KIBI, larger
        digits = 0 if unit == "B" or amount >= 100 else 1  # noqa: PLR2004 - three digits are enough
        return f"{_decimal(round(amount, digits), self.locale)} {unit}"

    def money(self, microusd: int) -> str:
        """An amount in the reader's currency: the smaller, the more digits."""
        per_usd = "1" if self.rate is None else self.rate.per_usd
        return _money(Decimal(microusd), self.currency, per_usd, self.locale)

    def price_of(self, tokens: int, microusd_per_mtok: int) -> str:
        """What so many tokens cost, to the last digit: a bill is rounded once, in its sum."""
        per_usd = "1" if self.rate is None else self.rate.per_usd
        exact = Decimal(tokens) * microusd_per_mtok / MICRO
        return _money(exact, self.currency, per_usd, self.locale)

    def moment(self, utc_us: int) -> Markup:
        """A time in the reader's zone, to the second; the exact one stands in its title."""
        at = _at(utc_us)
        here = at.astimezone(ZoneInfo(self.zone))
        shown = format_datetime(here, "medium", locale=_locale(self.locale)) + _if_twice(here)
        iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(iso, shown)

    def told(self, text: str) -> Markup:
        """What a program wrote down, its times in UTC as any other time of the page."""
        parts: list[str | Markup] = []
        for number, part in enumerate(_WRITTEN_TIME.split(text)):
            try:
                parts.append(self.moment(_us_of(part)) if number % 2 else part)
            except ValueError:
                parts.append(part)
        return Markup("").join(parts)

    def day(self, utc_us: int) -> Markup:
        """The day of a time in the reader's zone; the exact time stands in its title."""
        at = _at(utc_us)
        shown = format_date(
            at.astimezone(ZoneInfo(self.zone)), "medium", locale=_locale(self.locale)
        )
        iso = at.isoformat(timespec="seconds").replace("+00:00", "Z")
        return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(iso, shown)

    def last_day(self, until_us: int, zone: str) -> Markup:
        """The last day of what ends at midnight in `zone`, whose calendar it was chosen by.

        What ends at another time has no last day, and is shown to end at that moment.
        """
        end = _at(until_us).astimezone(ZoneInfo(zone))
        if end.time() != time():
            return self.moment(until_us)
        iso = _at(until_us).isoformat(timespec="seconds").replace("+00:00", "Z")
        shown = self.date(end.date() - timedelta(days=1))
        # No <time>: on paper that says its moment, which is the day after.
        return Markup('<span title="until {}">{}</span>').format(iso, shown)

    def first_day(self, since_us: int, zone: str) -> Markup:
        """The first day of what begins at midnight in `zone`, else the moment of its beginning."""
        start = _at(since_us).astimezone(ZoneInfo(zone))
        if start.time() != time():
            return self.moment(since_us)
        return Markup("<span>{}</span>").format(self.date(start.date()))

    def date(self, day: date | str) -> str:
        """A day that is one already, in whatever zone it was counted; other text as it stands."""
        try:
            there = day if isinstance(day, date) else date.fromisoformat(day)
        except ValueError:
            return str(day)
        return format_date(there, "medium", locale=_locale(self.locale))

    def moment_short(self, utc_us: int, now_us: int) -> Markup:
        """A time in a list: without the day if that is today's, without the year else."""
        zone = ZoneInfo(self.zone)
        at = _at(utc_us)
        here, now = at.astimezone(zone), datetime.fromtimestamp(now_us / SECOND_US, zone)
        shown = format_time(here.time(), "medium", locale=_locale(self.locale))
        if here.date() != now.date():
            shown = f"{format_skeleton('MMMd', here, locale=_locale(self.locale))}, {shown}"
        shown += _if_twice(here)
        iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(iso, shown)

    def span(self, duration_us: int) -> str:
        """How long something took, or takes."""
        if duration_us < 1_000:  # noqa: PLR2004 - a millisecond
            return f"{duration_us} µs"
        if duration_us < SECOND_US:
            return f"{_decimal(round(duration_us / 1_000, 1), self.locale)} ms"
        if duration_us < 60 * SECOND_US:
            return f"{_decimal(round(duration_us / SECOND_US, 1), self.locale)} s"
        days = round(duration_us / DAY_US)
        if COUNTED_DAYS_MIN <= days <= COUNTED_DAYS_MAX:
            # Weeks and months are too coarse for what is due by law: a month is 26 days to Babel.
            return format_unit(days, "duration-day", locale=_locale(self.locale))
        return format_timedelta(duration_us // SECOND_US, locale=_locale(self.locale))

    def left(self, duration_us: int, unit: Unit = "hours") -> str:
        """How much of a time to do something is left, or is over, in the unit that it is given in.

        Never more than there is; the last two of a unit are said in the next smaller one.
        """
        sizes = [("day", DAY_US), ("hour", HOUR_US), ("minute", MINUTE_US), ("second", SECOND_US)]
        for name, length_us in sizes if unit == "days" else sizes[1:]:
            count = duration_us // length_us
            if count >= 2 or name == "second":  # noqa: PLR2004 - more than one of them
                return format_unit(count, f"duration-{name}", locale=_locale(self.locale))
        raise AssertionError("seconds count everything")


def _at(utc_us: int) -> datetime:
    """A time in UTC; one that no calendar has is the nearest that all have: a page is shown."""
    return datetime.fromtimestamp(min(max(utc_us, FIRST_US), LAST_US) / SECOND_US, UTC)


def _us_of(written: str) -> int:
    """Raises ValueError where no calendar has it."""
    return int(datetime.fromisoformat(written).timestamp()) * SECOND_US


def _if_twice(here: datetime) -> str:
    """Which of two it is, where clocks are put back and show a time once more."""
    if here.utcoffset() == here.replace(fold=1 - here.fold).utcoffset():
        return ""
    offset = f"{here:%z}"
    return f" (UTC{offset[:3]}:{offset[3:5]})"


@cache
def _locale(name: str) -> Locale:
    """One of LOCALES. A name would be parsed again for each number of a page."""
    return Locale.parse(name)


@lru_cache(WRITTEN_KEPT, typed=True)
def _decimal(value: float, locale: str) -> str:
    return format_decimal(value, locale=_locale(locale))


@lru_cache(WRITTEN_KEPT)
def _money(microusd: Decimal, currency: str, per_usd: str, locale: str) -> str:
    amount = microusd / MICRO * Decimal(per_usd)
    digits = "0.00"
    if 0 < abs(microusd) < MICRO:
        digits = "0.00##" if abs(microusd) >= CENT else "0.000000"
    if abs(microusd) < MICRO and microusd % 1:
        digits = "0.000000######"
    pattern = f"¤#,##,##{digits}" if locale.endswith("_IN") else f"¤#,##{digits}"
    return format_currency(amount, currency, pattern, locale=_locale(locale), currency_digits=False)


def preferences_of(
    request: Asking, currencies: Mapping[str, CurrencySettings], zone: str = "UTC"
) -> Preferences:
    """The cookie's, else the browser's language and the organisation's zone.

    Whatever is in it and not known is left out: a cookie names no code, file or template.
    """
    said = dict(
        part.split("=", 1)
        for part in request.cookies.get(COOKIE, "")[:COOKIE_BYTES_MAX].split("&")
        if "=" in part
    )
    locale = said.get("locale") or _accepted(request.headers.get("accept-language", ""))
    currency = said.get("currency", "USD")
    theme = said.get("theme", "system")
    zones = (said.get("zone", ""), zone, "UTC")
    return Preferences(
        locale=locale if locale in LOCALES else LOCALES[0],
        zone=next(name for name in zones if is_zone(name)),
        currency=currency if currency in currencies else "USD",
        theme=next((known for known in THEMES if known == theme), "system"),
        single_keys=said.get("keys") != "off",
        rate=currencies.get(currency),
    )


def cookie_of(preferences: Preferences) -> str:
    """What the cookie holds of them."""
    kept = {"locale": preferences.locale, "zone": preferences.zone}
    kept |= {"currency": preferences.currency, "theme": preferences.theme}
    kept |= {} if preferences.single_keys else {"keys": "off"}
    return "&".join(f"{name}={value}" for name, value in kept.items())


def is_zone(name: str) -> bool:
    """Whether a time zone of this name is known."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return bool(name)


def _accepted(header: str) -> str:
    """The first of the browser's languages that we have words of numbers for."""
    for part in header.split(",")[:10]:
        tag = part.partition(";")[0].strip().replace("-", "_")
        try:
            language = Locale.parse(tag).language if tag else ""
        except (UnknownLocaleError, ValueError):
            continue
        for locale in LOCALES:
            if tag == locale or (tag == language and locale.startswith(f"{language}_")):
                return locale
    return LOCALES[0]
