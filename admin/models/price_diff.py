"""Compares another price file with the one in force: per model, column and last month's cost.

Pure. A file is compared as it would be in force: its entries before those that ship with the
gateway.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.money.catalogue import Catalogue, Entry
from gateway.money.costs import list_price


AMOUNTS: Final = {
    "input_microusd_per_mtok": "input",
    "output_microusd_per_mtok": "output",
    "cache_read_microusd_per_mtok": "cached input",
    "cache_write_microusd_per_mtok": "cache write",
    "cache_write_1h_microusd_per_mtok": "cache write, 1 h",
}
"""Columns of money, per million tokens."""
NUMBERS: Final = {
    "batch_percent": "batch, percent",
    "priority_percent": "priority, percent",
    "flex_percent": "flex, percent",
    "us_percent": "in the United States, percent",
    "web_search_microusd": "a search, millionths of a dollar",
    "context_window_tokens": "context, tokens",
    "output_tokens_max": "output, tokens at most",
    "priced_up_to_tokens": "priced up to, tokens",
    "long_input_percent": "input beyond that, percent",
    "long_output_percent": "output beyond that, percent",
}
TEXTS: Final = {"tier": "tier", "vendor": "vendor", "unbilled_tools": "tools not billed"}

CellKind = Literal["money", "number", "text"]
_COLUMNS: Final[Mapping[CellKind, Mapping[str, str]]] = {
    "money": AMOUNTS,
    "number": NUMBERS,
    "text": TEXTS,
}
Kind = Literal["changed", "added", "removed"]


class Cell(Struct, frozen=True):
    """One column that differs; None is where there is no such model."""

    column: str
    kind: CellKind
    before: int | str
    after: int | str
    share: float | None = None
    """By how much it grows, as a share of what it was; None where that is nothing."""


class Change(Struct, frozen=True):
    """One model that another file has otherwise."""

    model: str
    kind: Kind
    cells: tuple[Cell, ...]
    targets: tuple[str, ...]
    """Which configured targets cost what it says."""
    as_of_before: str = ""
    as_of_after: str = ""


class Used(Struct, frozen=True):
    """What a target was used for lately."""

    target: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int
    unpriced: int


class Effect(Struct, frozen=True):
    """What a target's last month cost, and would have cost."""

    target: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    paid_microusd: int
    would_microusd: int | None
    """None where the other file has no price for it: it would not be served."""

    @property
    def more_microusd(self) -> int:
        return 0 if self.would_microusd is None else self.would_microusd - self.paid_microusd


class Unpriced(Struct, frozen=True):
    """Usage that cost nothing although tokens were used."""

    target: str
    requests: int
    model: str = ""
    """Its entry; empty where no target of this name is configured any more."""
    is_priced_after: bool = False


class PriceDiff(Struct, frozen=True):
    """Everything that a comparison shows."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    unpriced: tuple[Unpriced, ...]
    same: int
    """Models that stay as they are."""

    @property
    def paid_microusd(self) -> int:
        return sum(each.paid_microusd for each in self.effects)

    @property
    def would_microusd(self) -> int:
        return sum(each.paid_microusd + each.more_microusd for each in self.effects)

    @property
    def unserved(self) -> tuple[str, ...]:
        """Targets that would have no price, so that the gateway would refuse the file."""
        return tuple(
            name for each in self.changes if each.kind == "removed" for name in each.targets
        )


def compare(
    before: Catalogue, after: Catalogue, targets: Mapping[str, str], used: Sequence[Used]
) -> PriceDiff:
    """What changes between two catalogues, for targets (name → entry) and what they were used for.

    Models that a target uses come first.
    """
    by_model: dict[str, list[str]] = {}
    for target, model in targets.items():
        by_model.setdefault(model, []).append(target)
    names = sorted({*before.models, *after.models}, key=lambda name: (name not in by_model, name))
    found = [
        _change(name, before.models.get(name), after.models.get(name), by_model.get(name, ()))
        for name in names
    ]
    changes = tuple(each for each in found if each is not None)
    return PriceDiff(
        changes,
        tuple(_effects(before, after, targets, used)),
        tuple(_unpriced(after, targets, used)),
        same=len(names) - len(changes),
    )


def _change(
    name: str, before: Entry | None, after: Entry | None, targets: Collection[str]
) -> Change | None:
    if before is None and after is not None:
        return Change(name, "added", _cells(None, after), tuple(targets), "", after.as_of)
    if after is None and before is not None:
        return Change(name, "removed", (), tuple(targets), before.as_of)
    if before is None or after is None:
        return None
    cells = _cells(before, after)
    if not cells:
        return None
    return Change(name, "changed", cells, tuple(targets), before.as_of, after.as_of)


def _cells(before: Entry | None, after: Entry) -> tuple[Cell, ...]:
    cells = []
    for kind, columns in _COLUMNS.items():
        for field, column in columns.items():
            now = _shown(getattr(after, field))
            old = _shown(getattr(before, field)) if before is not None else ""
            is_shown = now != old if before is not None else field in AMOUNTS
            if is_shown:
                cells.append(Cell(column, kind, old, now, _share(old, now)))
    if before is not None:
        cells += _stances(before.parameters, after.parameters)
        gone, new = (
            before.capabilities - after.capabilities,
            after.capabilities - before.capabilities,
        )
        cells += [Cell("can no more", "text", ", ".join(sorted(gone)), "")] if gone else []
        cells += [Cell("can now", "text", "", ", ".join(sorted(new)))] if new else []
    return tuple(cells)


def _shown(value: object) -> int | str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int) else str(value)


def _stances(before: Mapping[str, str], after: Mapping[str, str]) -> list[Cell]:
    """Fields of requests that a model takes otherwise."""
    return [
        Cell(f"takes {name}", "text", before.get(name, "unknown"), after.get(name, "unknown"))
        for name in sorted({*before, *after})
        if before.get(name, "unknown") != after.get(name, "unknown")
    ]


def _share(old: object, new: object) -> float | None:
    if not isinstance(old, int) or not isinstance(new, int) or not old:
        return None
    return (new - old) / old


def _effects(
    before: Catalogue, after: Catalogue, targets: Mapping[str, str], used: Sequence[Used]
) -> list[Effect]:
    """Only of targets that have a price now: others were paid at none that is known."""
    found = []
    for each in used:
        model = targets.get(each.target, "")
        old, new = before.models.get(model), after.models.get(model)
        if old is None or each.cost_microusd + each.input_tokens + each.output_tokens == 0:
            continue
        found.append(
            Effect(
                each.target,
                model,
                each.requests,
                each.input_tokens,
                each.output_tokens,
                each.cost_microusd,
                None if new is None else _would(each, old, new),
            )
        )
    return sorted(found, key=lambda each: (-abs(each.more_microusd), -each.paid_microusd))


def _would(used: Used, old: Entry, new: Entry) -> int:
    """What was paid, by as much more or less as the same tokens cost at list price.

    So discounts for cached input, batches and tiers stay the share that they were.
    """
    was = list_price(old.price, used.input_tokens, used.output_tokens)
    now = list_price(new.price, used.input_tokens, used.output_tokens)
    return round(used.cost_microusd * now / was) if was else used.cost_microusd + now


def _unpriced(after: Catalogue, targets: Mapping[str, str], used: Sequence[Used]) -> list[Unpriced]:
    """Of what is free in the other file, too, nothing is missing."""
    found = []
    for each in used:
        model = targets.get(each.target, "")
        entry = after.models.get(model)
        has_price = entry is not None and entry.output_microusd_per_mtok > 0
        if each.unpriced and (has_price or not model):
            found.append(Unpriced(each.target, each.unpriced, model, has_price))
    return found
