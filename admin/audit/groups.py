"""Groups records of the audit explorer by who acted, on what, by sitting, or in lanes. Pure.

A sitting is a run of records of one person, or of one key, without a pause of half an hour: records
know neither the session of a browser nor the conversation that a request belongs to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

from gateway.clock import SECOND_US
from gateway.oversight.searching import Filter, Term
from gateway.store.traffic.lists import Row


GROUPINGS: Final = {"who": "By person or key", "what": "By object", "sitting": "By session"}
LANES: Final = "lanes"
VIEWS: Final = {**GROUPINGS, LANES: "Side by side"}
PAUSE_US: Final = 30 * 60 * 1_000_000
GROUPS_MAX: Final = 200
LANES_MAX: Final = 6
MOMENTS_MAX: Final = 40
IN_CELL_MAX: Final = 3
ACTIONS_MAX: Final = 3
_WIDTHS_US: Final = tuple(s * SECOND_US for s in (60, 300, 900, 3600, 10_800, 43_200, 86_400))
Kind = Literal["person", "key", "model", "thing", "nobody"]


class Doer(Struct, frozen=True, order=True):
    """Who did something, or what it was done to."""

    kind: Kind
    name: str


class Group(Struct, frozen=True):
    """Records that belong together."""

    of: Doer
    count: int
    deeds: int
    failed: int
    """Records that are neither `ok` nor only begun."""
    others: int
    """The number of different people and keys or, for a person or key, of things."""
    first_us: int
    last_us: int
    actions: tuple[tuple[str, int], ...]
    """The most frequent actions."""
    terms: tuple[Term, ...]
    """A filter that finds the same records again; empty if there is none."""


class Cell(Struct, frozen=True):
    """One doer's records in a span of time: the newest of each sort, and how many there are."""

    rows: tuple[Row, ...]
    """Rows of the most frequent sorts."""
    counts: tuple[int, ...]
    """The number of records of each of these sorts."""
    count: int
    """The number of records of all sorts together."""


class Moment(Struct, frozen=True):
    """A span of time that begins at `utc_us`; one cell for each lane."""

    utc_us: int
    cells: tuple[Cell, ...]


class Lanes(Struct, frozen=True):
    """Who did what when, side by side; the newest first."""

    doers: tuple[tuple[Doer, int], ...]
    """Each lane, and how many records it holds."""
    moments: tuple[Moment, ...]
    width_us: int
    left_out: int
    """Records that no lane shows: of other doers, or before the oldest moment."""


def doer_of(row: Row) -> Doer:
    """The doer: a person for a deed, a key for a request."""
    if row.actor:
        return Doer("person", row.actor)
    return Doer("key", row.key_id) if row.key_id else Doer("nobody", "")


def grouped(
    grouping: str, rows: Sequence[Row], things: Mapping[tuple[str, int], str]
) -> list[Group]:
    """Rows (newest first) in groups; `things` names what each deed was done to."""
    if grouping == "sitting":
        return [_group(doer_of(run[0]), run, things, span=True) for run in _runs(rows)][:GROUPS_MAX]
    key: Callable[[Row], Doer] = doer_of if grouping == "who" else lambda r: thing_of(r, things)
    found: dict[Doer, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    groups = [_group(of, each, things) for of, each in found.items()]
    return sorted(groups, key=lambda g: (-g.count, g.of))[:GROUPS_MAX]


def thing_of(row: Row, things: Mapping[tuple[str, int], str]) -> Doer:
    """What a deed was done to, or which model a request reached or asked for."""
    if row.stage == "admin":
        kind = row.action.partition(".")[0]
        return Doer("thing", f"{kind} {things.get((row.organisation, row.sequence), '')}".strip())
    return Doer("model", row.target or row.model_requested)


def named_in(after: object) -> str:
    """The name of what a deed orders, among the words that deeds use for it."""
    if not isinstance(after, dict):
        return ""
    words = ("key_id", "account", "team", "person", "name", "level", "sink", "member", "log")
    return next((str(after[word]) for word in words if after.get(word)), "")


def lanes_of(rows: Sequence[Row]) -> Lanes:
    """Rows (newest first) side by side: those who did most, in spans of a round width."""
    counts = Counter(map(doer_of, rows)).most_common(LANES_MAX)
    place = {doer: number for number, (doer, _) in enumerate(counts)}
    shown = [row for row in rows if doer_of(row) in place]
    width = next(
        (w for w in _WIDTHS_US if len({row.utc_us // w for row in shown}) <= MOMENTS_MAX),
        _WIDTHS_US[-1],
    )
    spans: dict[int, list[list[Row]]] = {}
    for row in shown:
        start = row.utc_us // width * width
        if start not in spans and len(spans) == MOMENTS_MAX:
            continue
        spans.setdefault(start, [[] for _ in place])[place[doer_of(row)]].append(row)
    moments = tuple(Moment(start, tuple(map(_cell, cells))) for start, cells in spans.items())
    inside = sum(cell.count for moment in moments for cell in moment.cells)
    return Lanes(tuple(counts), moments, width, len(rows) - inside)


def _cell(rows: Sequence[Row]) -> Cell:
    sorts: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        did = row.action if row.stage == "admin" else row.stage
        sorts.setdefault((did, row.target or row.model_requested, row.status), []).append(row)
    most = sorted(sorts.values(), key=len, reverse=True)[:IN_CELL_MAX]
    return Cell(tuple(each[0] for each in most), tuple(map(len, most)), len(rows))


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Newest first: a run ends where its doer's next older record is half an hour before."""
    open_runs: dict[Doer, list[Row]] = {}
    runs: list[list[Row]] = []
    for row in rows:
        doer = doer_of(row)
        run = open_runs.get(doer)
        if run is None or run[-1].utc_us - row.utc_us > PAUSE_US:
            run = []
            open_runs[doer] = run
            runs.append(run)
        run.append(row)
    return runs


def _group(
    of: Doer, rows: Sequence[Row], things: Mapping[tuple[str, int], str], *, span: bool = False
) -> Group:
    newest, oldest = rows[0].utc_us, rows[-1].utc_us
    others = _others(of, rows, things)
    terms = _terms(of, rows)
    if span and terms:
        since, until = oldest // SECOND_US, newest // SECOND_US + 1
        terms = (*terms, Term("since", (_moment(since),)), Term("until", (_moment(until),)))
    said = Counter(row.action if row.stage == "admin" else row.stage for row in rows)
    return Group(
        of=of,
        count=len(rows),
        deeds=sum(row.stage == "admin" for row in rows),
        failed=sum(row.status not in ("ok", "") for row in rows),
        others=others,
        first_us=oldest,
        last_us=newest,
        actions=tuple(said.most_common(ACTIONS_MAX)),
        terms=terms,
    )


def _others(of: Doer, rows: Iterable[Row], things: Mapping[tuple[str, int], str]) -> int:
    if of.kind in ("thing", "model"):
        return len({doer_of(row) for row in rows})
    return len({thing_of(row, things) for row in rows})


def _terms(of: Doer, rows: Sequence[Row]) -> tuple[Term, ...]:
    """Terms that find them again. A deed is found by its kind: no column has its object."""
    if not of.name:
        return ()
    match of.kind:
        case "person":
            return (Term("actor", (of.name,)),)
        case "key":
            return (Term("key", (of.name,)),)
        case "model":
            field = "target" if rows[0].target else "model"
            return (Term(field, (of.name,)),)
        case "thing":
            return (Term("action", (f"{of.name.partition(' ')[0]}.*",)),)
    return ()


def narrowed(found: Filter, group: Group) -> Filter:
    """A filter that finds a group's records."""
    rest = found.without(*(term.field for term in group.terms))
    return Filter((*rest.terms, *group.terms))


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
