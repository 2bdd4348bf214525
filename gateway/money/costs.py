"""Cost reports: savings, forecast, other currencies and chargeback. Pure.

Sums are integer micro-dollars. Another currency is only a way to show them, at a rate with a date;
nothing is ever booked in it.
"""

import csv
import io
import math
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
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What spreadsheets take for the beginning of a formula; some in Asia also take the wide ones."""
_CENTS = 100
_COUNTED = ("requests", "input_tokens", "output_tokens", "cost_microusd", "cost")
_CONTEXT = ("amount", "currency", "rate_per_usd", "rate_as_of", "since", "until", "time_zone")
METHOD = (
    "The same input and output tokens at the list price of {target} (as of {as_of}), without any"
    " discount for cached input or batches, less what was paid. Failed requests count as far as"
    " they were paid. Models of another kind, such as embeddings, are left out on both sides;"
    " answers from the response cache have no tokens, and so save nothing here."
)
NO_FRONTIER = " None of the models is of the frontier tier: it is the dearest of them."


class CostRow(Struct, frozen=True):
    """One group of requests."""

    group: tuple[str, ...]
    requests: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int


class Days(Struct, frozen=True):
    """The days that sums cover, first and last included, and the time zone of their midnight."""

    since: date
    until: date
    time_zone: str


class Savings(Struct, frozen=True):
    """What routing saved against sending everything to one target."""

    cost_microusd: int
    baseline_microusd: int
    method: str
    as_of: str = ""
    """The date of the list price, as it stands in `method`."""

    @property
    def saved_microusd(self) -> int:
        return self.baseline_microusd - self.cost_microusd

    @property
    def saved_percent(self) -> float:
        """Percent of the baseline; 0 if nothing was used."""
        return 100.0 * self.saved_microusd / self.baseline_microusd if self.baseline_microusd else 0


class Forecast(Struct, frozen=True):
    """What the month will have cost at its end."""

    spent_microusd: int
    expected_microusd: int
    days_left: int
    method: str


def dearest(targets: Iterable[Target]) -> Target:
    """The baseline if none is named: the frontier target with the most expensive output.

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


def savings(rows: Iterable[CostRow], targets: Iterable[Target], baseline: Target) -> Savings:
    """What was saved against `baseline`; the method says what was compared with what.

    Args:
        rows: by target alone.
        targets: those that are configured; a former one counts as being of the same kind.
        baseline: the target that the same tokens are priced at.
    """
    # Only the same kind: a chat model could not have done the embeddings.
    purposes = {target.name: target.purpose for target in targets}
    total = total_of(
        row for row in rows if purposes.get(row.group[0], baseline.purpose) == baseline.purpose
    )
    method = METHOD.format(target=baseline.name, as_of=baseline.price.as_of)
    return Savings(
        total.cost_microusd,
        list_price(baseline.price, total.input_tokens, total.output_tokens),
        method if baseline.tier == "frontier" else method + NO_FRONTIER,
        baseline.price.as_of,
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
    """Spent so far this month, plus, for each day left, the recent mean of its weekday.

    Args:
        by_day: micro-dollars of each day; missing days are zero.
        today: a day that is not over: it counts at its cost so far, and at least its share.
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
    """How it was computed, in words."""
    if not days:
        return "what was spent so far: no day before today says yet what a day costs"
    lately = "the day before" if days == 1 else f"the last {days} days"
    return f"spent so far, and for each day left the mean of that weekday in {lately}"


def expected(by_day: Mapping[date, int], today: date, until: date) -> dict[date, int]:
    """The expected costs of today's rest and each day until then: recent means of weekdays."""
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
    """The day on which so much will be spent, at recent daily costs; None if not until then."""
    for day, cost in expected(by_day, today, until).items():
        left_microusd -= cost
        if left_microusd <= 0:
            return day
    return None


def end_of_month(day: date) -> date:
    """The last day of a day's month."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)


def _known(by_day: Mapping[date, int], today: date) -> list[date]:
    """The days that a forecast learns from: complete ones, from the first with any cost."""
    first = min((day for day, cost in by_day.items() if cost), default=today)
    past = (today - timedelta(days=back) for back in range(1, _HISTORY_DAYS + 1))
    return [day for day in past if day >= first]


def _month(day: date) -> tuple[int, int]:
    return day.year, day.month


def shown(microusd: int, currency: str, currencies: Mapping[str, CurrencySettings]) -> str:
    """An amount for people, with two digits, and with the date of its rate if there is one.

    Raises:
        RequestInvalid: the currency has no rate.
    """
    (text,) = shown_together([microusd], currency, currencies)
    return text


def shown_together(
    amounts: Sequence[int], currency: str, currencies: Mapping[str, CurrencySettings]
) -> list[str]:
    """The parts of a sum for people: they add up to the amount that is shown for the sum.

    Raises:
        RequestInvalid: the currency has no rate.
    """
    rate = _rate(currency, currencies)
    of = f" (rate of {rate.as_of})" if rate.as_of else ""
    return [f"{amount} {currency}{of}" for amount in _rounded(amounts, rate)]


def _rate(currency: str, currencies: Mapping[str, CurrencySettings]) -> CurrencySettings:
    """The price of a dollar; raises RequestInvalid."""
    if currency == "USD":
        return CurrencySettings("1", "")
    setting = currencies.get(currency)
    if setting is None:
        raise RequestInvalid("this currency has no rate", parameter="currency")
    return setting


def _rounded(amounts: Sequence[int], rate: CurrencySettings) -> list[Decimal]:
    """Micro-dollars in hundredths of a currency; those nearest to the next one are rounded up.

    As many are rounded up as the sum, rounded once, exceeds all of them rounded down.
    """
    exact = [Decimal(each) * Decimal(rate.per_usd) * _CENTS / 1_000_000 for each in amounts]
    cents = [math.floor(each) for each in exact]
    missing = round(sum(exact)) - sum(cents)
    nearest = sorted(range(len(exact)), key=lambda at: (cents[at] - exact[at], at))
    for at in nearest[:missing]:
        cents[at] += 1
    return [Decimal(each).scaleb(-2) for each in cents]


def chargeback(
    rows: Iterable[CostRow],
    dimensions: Sequence[str],
    currency: str,
    currencies: Mapping[str, CurrencySettings],
    days: Days,
) -> str:
    """CSV with one line per group; cells that a spreadsheet would run begin with an apostrophe.

    `amount` is a number in `currency`, and amounts add up to that of the sum; each line tells its
    days and where they begin. Texts are in quotes, so that one that holds the separator of another
    country's spreadsheets does not begin another cell.

    Raises:
        RequestInvalid: the currency has no rate.
    """
    listed = list(rows)
    costs = [row.cost_microusd for row in listed]
    rate = _rate(currency, currencies)
    span = (str(days.since), str(days.until), days.time_zone)
    context = (currency, Decimal(rate.per_usd), rate.as_of, *span)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([*dimensions, *_COUNTED, *_CONTEXT])
    said = shown_together(costs, currency, currencies)
    for row, cost, amount in zip(listed, said, _rounded(costs, rate), strict=True):
        cells = [*row.group, row.requests, row.input_tokens, row.output_tokens, row.cost_microusd]
        writer.writerow([*map(_harmless, cells), cost, amount, *context])
    return text.getvalue()


def _harmless(cell: object) -> object:
    # Some spreadsheets ignore blanks before it.
    if isinstance(cell, str) and (cell.lstrip().startswith(_FORMULA) or cell[:1].isspace()):
        return f"'{cell}"
    return cell
