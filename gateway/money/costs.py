"""What requests cost, laid out for people: savings, forecast, other currencies, chargeback. Pure.

Sums are integer micro-dollars. Another currency is a way of showing, by a rate with a date; nothing
is ever booked in it.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal

from msgspec import Struct

from gateway.configuration.sections import CurrencySettings
from gateway.errors import RequestInvalid
from gateway.price import Price
from gateway.types import Target


_TOKENS_PER_MTOK = 1_000_000
_HISTORY_DAYS = 28
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
METHOD = (
    "The same input and output tokens at the list price of {target} (as of {as_of}), without any"
    " discount for cached input or batches, less what was paid. Failed requests count as far as"
    " they were paid."
)


class CostRow(Struct, frozen=True):
    """One group of requests."""

    group: tuple[str, ...]
    requests: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int


class Savings(Struct, frozen=True):
    """What routing saved against sending everything to one target."""

    cost_microusd: int
    baseline_microusd: int
    method: str

    @property
    def saved_microusd(self) -> int:
        return self.baseline_microusd - self.cost_microusd

    @property
    def saved_percent(self) -> float:
        """Of the baseline; 0 where nothing was used."""
        return 100.0 * self.saved_microusd / self.baseline_microusd if self.baseline_microusd else 0


class Forecast(Struct, frozen=True):
    """What the month will have cost at its end."""

    spent_microusd: int
    expected_microusd: int
    days_left: int
    method: str


def dearest(targets: Iterable[Target]) -> Target:
    """The baseline where none is named: the frontier target whose output costs most.

    Raises:
        RequestInvalid: no target has a price.
    """
    priced = [each for each in targets if each.price.output_microusd_per_mtok]
    frontier = [each for each in priced if each.tier == "frontier"] or priced
    if not frontier:
        raise RequestInvalid("no target has a price to compare with", parameter="baseline")
    return max(frontier, key=lambda each: (each.price.output_microusd_per_mtok, each.name))


def list_price(price: Price, input_tokens: int, output_tokens: int) -> int:
    """Micro-dollars at list price, rounded up once."""
    total = (
        input_tokens * price.input_microusd_per_mtok
        + output_tokens * price.output_microusd_per_mtok
    )
    return -(-total // _TOKENS_PER_MTOK)


def savings(rows: Iterable[CostRow], baseline: Target) -> Savings:
    """Against `baseline`; the method says what was compared with what."""
    total = total_of(rows)
    return Savings(
        total.cost_microusd,
        list_price(baseline.price, total.input_tokens, total.output_tokens),
        METHOD.format(target=baseline.name, as_of=baseline.price.as_of),
    )


def total_of(rows: Iterable[CostRow]) -> CostRow:
    listed = list(rows)
    return CostRow(
        (),
        sum(row.requests for row in listed),
        sum(row.input_tokens for row in listed),
        sum(row.output_tokens for row in listed),
        sum(row.cost_microusd for row in listed),
    )


def forecast(by_day: Mapping[date, int], today: date) -> Forecast:
    """Spent so far this month, and for each day left the mean of its weekday lately.

    Args:
        by_day: micro-dollars of each day; those without are zero.
        today: counts as a day that is not over: what it cost so far, and no less than its share.
    """
    spent = sum(cost for day, cost in by_day.items() if (day.year, day.month) == _month(today))
    last = end_of_month(today)
    return Forecast(
        spent,
        spent + sum(expected(by_day, today, last).values()),
        (last - today).days,
        _method(len(_known(by_day, today))),
    )


def _method(days: int) -> str:
    """How it was counted, in words."""
    if not days:
        return "what was spent so far: no day before today says yet what a day costs"
    lately = "the day before" if days == 1 else f"the last {days} days"
    return f"spent so far, and for each day left the mean of that weekday in {lately}"


def expected(by_day: Mapping[date, int], today: date, until: date) -> dict[date, int]:
    """What today and each day until then are still to cost: the mean of their weekday lately."""
    known = _known(by_day, today)
    found: dict[date, int] = {}
    day = today
    while day <= until:
        same = [by_day.get(each, 0) for each in known if each.weekday() == day.weekday()]
        lately = same or [by_day.get(each, 0) for each in known]
        mean = sum(lately) // len(lately) if lately else 0
        found[day] = max(mean - by_day.get(today, 0), 0) if day == today else mean
        day += timedelta(days=1)
    return found


def exhausted_on(
    by_day: Mapping[date, int], today: date, left_microusd: int, until: date
) -> date | None:
    """The day on which so much will be spent, at what days cost lately; None if not until then."""
    for day, cost in expected(by_day, today, until).items():
        left_microusd -= cost
        if left_microusd <= 0:
            return day
    return None


def end_of_month(day: date) -> date:
    """The last day of a day's month."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)


def _known(by_day: Mapping[date, int], today: date) -> list[date]:
    """The days that a forecast learns from: whole ones, since there is anything."""
    first = min((day for day, cost in by_day.items() if cost), default=today)
    past = (today - timedelta(days=back) for back in range(1, _HISTORY_DAYS + 1))
    return [day for day in past if day >= first]


def _month(day: date) -> tuple[int, int]:
    return day.year, day.month


def shown(microusd: int, currency: str, currencies: Mapping[str, CurrencySettings]) -> str:
    """An amount as people read it, with two digits, and with its rate's date where it has one.

    Raises:
        RequestInvalid: the currency has no rate.
    """
    if currency == "USD":
        return f"{Decimal(microusd) / 1_000_000:.2f} USD"
    setting = currencies.get(currency)
    if setting is None:
        raise RequestInvalid("this currency has no rate", parameter="currency")
    amount = Decimal(microusd) * Decimal(setting.per_usd) / 1_000_000
    return f"{amount:.2f} {currency} (rate of {setting.as_of})"


def chargeback(
    rows: Iterable[CostRow],
    dimensions: Sequence[str],
    currency: str,
    currencies: Mapping[str, CurrencySettings],
) -> str:
    """CSV with one line per group; cells that a spreadsheet would run begin with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    numbers = ("requests", "input_tokens", "output_tokens", "cost_microusd", "cost")
    writer.writerow([*dimensions, *numbers])
    for row in rows:
        cells = [*row.group, row.requests, row.input_tokens, row.output_tokens, row.cost_microusd]
        writer.writerow([*map(_harmless, cells), shown(row.cost_microusd, currency, currencies)])
    return text.getvalue()


def _harmless(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return cell
