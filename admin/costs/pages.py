"""The pages of cost: what was spent, by whom, and what is to come."""

from datetime import date, timedelta
from typing import Any, Final

import msgspec
from litestar import MediaType, Response, route
from litestar.params import FromPath

from admin.access import needs
from admin.asking import Asking
from admin.costs.reader import GROUPS, SORTS, CostReader, Group, Question, check
from admin.queries import Query, first_of
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.errors import RequestInvalid
from gateway.money import costs as arithmetic
from gateway.oversight.access import Permission


UNUSUAL_SHOWN: Final = 30
FIRST_YEAR: Final = 2000
LAST_YEAR: Final = 9000
"""Days beyond have no moment in every time zone, or none after them."""
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
SINCE: Final = Query("since", "The first day, in the organisation's time zone.", pattern=_DAY)
UNTIL: Final = Query("until", "The last day.", pattern=_DAY)
BY: Final = Query("by", "What costs are grouped by.", choices=tuple(GROUPS), default="team")
SORT: Final = Query(
    "sort",
    "What the largest stand first by; without it the dearest do, and days stand in their order. "
    "`growth` is what they cost more than on as many days just before.",
    choices=tuple(SORTS),
)
_P = Permission
_PATH: Final = "/o/{organisation:str}/costs"
_HTML: Final = MediaType.HTML


def cost_page_routes(services: Services) -> list[Any]:
    """The page, and its table as a file."""
    reader, shell = CostReader(services), services.shell

    @route(_PATH, http_method=READING, media_type=_HTML, opt=needs(_P.COSTS_READ))
    async def costs(request: Asking, organisation: FromPath[str]) -> Response[str]:
        today, _ = await reader.today(organisation)
        problem = ""
        try:
            question = question_of(request, today)
            check(question)
        except RequestInvalid as error:
            problem, question = error.message, Question(today.replace(day=1), today)
        found = await reader.summary(organisation, question)
        return await shell.page(
            request,
            "costs/costs.html",
            "costs",
            400 if problem else 200,
            costs=found,
            groups=list(GROUPS),
            months=_months(today),
            unusual_shown=UNUSUAL_SHOWN,
            percents=services.settings.alerts.percents,
            is_told=bool(services.settings.alerts.url),
            hour_floor=services.settings.alerts.dear_hour_microusd,
            problem=problem,
        )

    @route(f"{_PATH}/export.csv", http_method=READING, opt=needs(_P.COSTS_READ))
    async def export(request: Asking, organisation: FromPath[str]) -> Response[bytes]:
        today, zone = await reader.today(organisation)
        question = msgspec.structs.replace(question_of(request, today), first=0)
        groups = await reader.groups(organisation, question)
        currency = (await shell.way(request)).currency
        text = chargeback(services, question, groups, currency, str(zone))
        name = f"costs-{organisation}-{question.by}-{question.since}-{question.until}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text.encode(), media_type="text/csv; charset=utf-8", headers=headers)

    return [costs, export]


def _months(today: date) -> list[tuple[str, date, date]]:
    """What a bill is asked for most, each with its first and last day."""
    first = today.replace(day=1)
    last = first - timedelta(days=1)
    return [("This month", first, today), ("Last month", last.replace(day=1), last)]


def question_of(request: Asking, today: date) -> Question:
    """What the address asks for; this month where it says nothing.

    Raises:
        RequestInvalid: a day is none.
    """
    since, until = days_of(request, today)
    sort = SORT.of(request)
    if sort and sort not in SORTS:
        raise RequestInvalid(f"sort by one of {', '.join(SORTS)}", parameter="sort")
    return Question(since, until, BY.of(request), first_of(request), sort)


def days_of(request: Asking, today: date) -> tuple[date, date]:
    """The first and the last day; this month where none are named; raises RequestInvalid."""
    since = day_of(SINCE.of(request), "since") or today.replace(day=1)
    return since, day_of(UNTIL.of(request), "until") or today


def day_of(text: str, name: str) -> date | None:
    """A day such as `2026-11-30`; None for an empty text. Raises RequestInvalid."""
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise RequestInvalid("a day is written as 2026-11-30", parameter=name) from None
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise RequestInvalid(f"from the year {FIRST_YEAR} to {LAST_YEAR}", parameter=name)
    return day


def chargeback(
    services: Services, question: Question, groups: list[Group], currency: str, time_zone: str
) -> str:
    """Groups as CSV, a line each."""
    rows = [
        arithmetic.CostRow(
            (each.value, each.label),
            each.requests,
            each.input_tokens,
            each.output_tokens,
            each.cost_microusd,
        )
        for each in groups
    ]
    days = arithmetic.Days(question.since, question.until, time_zone)
    names, currencies = (question.by, "name"), services.settings.currencies
    return arithmetic.chargeback(rows, names, currency, currencies, days)
