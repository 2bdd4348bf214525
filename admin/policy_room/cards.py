"""Converts rules to forms and back: the fields of a card, from and into a document's text.

A card changes one rule of the text and leaves every other line as it is, comments included
(`policies.text.amending`). A document that does not load has no cards until its text is right.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.policy_room.proposing import offered
from gateway.errors import RequestInvalid
from policies.document import Case, Constraint, PolicyBody, Preference
from policies.facts import ASSURANCES, TIERS, Facts, TargetFacts
from policies.forms import FactField, Row, fact_fields, rows_of, when_of
from policies.ordering import ORDERINGS
from policies.problems import DocumentInvalid, ExpressionInvalid
from policies.text.amending import Amended, amended
from policies.text.loading import constraint_from, load_document, preference_from
from policies.text.writing import table_of


Kind = Literal["line", "lines", "words", "number", "switch", "choice", "shares", "truth"]
ROWS_MAX: Final = 12
FINDINGS_MAX: Final = 3
AUDIT_CONTENTS: Final = ("none", "redacted", "encrypted")
STICKY: Final = ("key", "project", "workspace")
FACTS: Final = {field.name: field for field in fact_fields()}


class Field(Struct, frozen=True):
    """One field of a card: `key` as the document writes it, with dots into tables."""

    key: str
    label: str
    kind: Kind
    choices: tuple[str, ...] = ()
    hint: str = ""


_SELECTOR: Final = (
    ("in_house", "in-house", "truth", (), ""),
    ("jurisdictions", "jurisdictions", "words", (), "such as eu, us"),
    ("targets", "targets", "words", (), "by name"),
    ("tiers", "tiers", "words", TIERS, ", ".join(TIERS)),
    ("providers", "providers", "words", (), ""),
    ("capabilities", "capabilities", "words", (), "all of them"),
    ("assurances", "assurances", "words", ASSURANCES, ", ".join(ASSURANCES)),
)


def _selector(key: str, title: str) -> tuple[Field, ...]:
    return tuple(
        Field(f"{key}.{name}", f"{title}: {label}", kind, choices, hint)  # type: ignore[arg-type]
        for name, label, kind, choices, hint in _SELECTOR
    )


def known_names(targets: Sequence[TargetFacts]) -> dict[str, tuple[str, ...]]:
    """Names that fields may use, by key without its table, from the targets that workers serve."""
    names = tuple(sorted(each.name for each in targets))
    return {
        "targets": names,
        "target": names,
        "weights": names,
        "jurisdictions": tuple(sorted({each.jurisdiction for each in targets})),
        "providers": tuple(sorted({each.provider for each in targets})),
        "capabilities": tuple(sorted({name for each in targets for name in each.capabilities})),
    }


CONSTRAINT: Final = (
    ("Targets that may answer", _selector("allow_only", "Only")),
    ("Targets that must not", _selector("forbid", "Never")),
    (
        "Refuse",
        (
            Field("deny", "Refuse, and say why", "line"),
            Field("require_approval", "Refuse without an approval label, and say why", "line"),
        ),
    ),
    (
        "Obligations",
        (
            Field("cap_output_tokens", "Output tokens at most", "number"),
            Field("cap_input_tokens", "Input tokens at most", "number"),
            Field("pseudonymise", "Replace findings by surrogates", "switch"),
            Field("redact", "Redact findings", "switch"),
            Field("scan_output", "Scan answers", "choice", ("count", "mask")),
            Field("no_cache", "Keep out of the response cache", "switch"),
            Field("audit_content", "Content kept in the record", "choice", AUDIT_CONTENTS),
        ),
    ),
)
PREFERENCE: Final = (
    (
        "Order",
        (
            Field("route", "Requested as auto:…", "line", (), "empty: for every request"),
            Field("targets", "These targets first", "words", (), "target names in order"),
            Field("order", "Then in order of", "words", ORDERINGS, ", ".join(ORDERINGS)),
        ),
    ),
    (
        "Shares",
        (
            Field("weights", "Shares", "shares", (), "NAME=3, OTHER=1"),
            Field("canary.target", "A canary target", "line"),
            Field("canary.percent", "Percent of callers", "number"),
            Field("sticky", "Assign callers by", "choice", STICKY),
        ),
    ),
    (
        "Slow or doubtful answers",
        (
            Field("hedge_after_ms", "Ask a second target after, in ms", "number"),
            Field("cascade_above_percent", "One tier up above this doubt, in percent", "number"),
            Field("stay_warm", "Stay with the target that has the prompt cached", "switch"),
            Field("cache_s", "Reuse the answer for, in seconds", "number"),
            Field(
                "cache_like_percent",
                "Also for questions at least this similar, in percent",
                "number",
            ),
        ),
    ),
)
FORMS: Final = {"constraints": CONSTRAINT, "preferences": PREFERENCE}


def body_of(text: str) -> PolicyBody | None:
    """The document of a text; None while it does not load."""
    try:
        return load_document(text).body
    except DocumentInvalid:
        return None


def rule_at(body: PolicyBody, section: str, place: int) -> Constraint | Preference:
    """The rule at a place; raises NotFoundException."""
    rules = rules_of(body, section)
    if not 0 <= place < len(rules):
        raise NotFoundException
    return rules[place]


def rules_of(body: PolicyBody, section: str) -> tuple[Constraint | Preference, ...]:
    """The rules of a phase; raises NotFoundException."""
    if section == "constraints":
        return body.constraints
    if section == "preferences":
        return body.preferences
    raise NotFoundException


def values_of(rule: Constraint | Preference | None) -> dict[str, str]:
    """The contents of the fields, by key."""
    if rule is None:
        return {}
    values: dict[str, str] = {}
    for key, value in table_of(rule).items():
        if isinstance(value, Mapping) and key != "weights":
            values |= {f"{key}.{inner}": _shown(each) for inner, each in value.items()}
        else:
            values[key] = _shown(value)
    return values


class Comparison(Struct, frozen=True):
    """One line of the form's condition, as its fields show it."""

    fact: str = ""
    key: str = ""
    operator: str = ""
    value: str = ""


def comparisons_of(when: str) -> list[Comparison] | None:
    """The lines of a condition; None if it can only be written as text."""
    try:
        rows = rows_of(when or None)
    except ExpressionInvalid:
        return None
    if rows is None or len(rows) > ROWS_MAX:
        return None
    return [
        Comparison(row.fact, row.key, row.operator, ", ".join(map(_shown, row.values)))
        for row in rows
    ]


def condition_like(facts: Facts) -> str:
    """A condition that holds for requests like this one: its project, class and findings."""
    rows = [Row("project", "==", (facts.project,)), Row("data_class", ">=", (facts.data_class,))]
    labels = sorted(facts.findings)[:FINDINGS_MAX]
    rows += [Row("findings", ">", (0,), label) for label in labels]
    return when_of(rows) or ""


def comparisons_typed(form: Mapping[str, str]) -> list[Comparison]:
    """The lines as somebody typed them, right or wrong."""
    parts = ("fact", "key", "operator", "value")
    typed = [[form.get(f"row{number}.{part}", "") for part in parts] for number in range(ROWS_MAX)]
    return [Comparison(*line) for line in typed if any(line)]


def rule_from(section: str, form: Mapping[str, str]) -> Constraint | Preference:
    """The rule that a form describes.

    Raises:
        RequestInvalid: what is wrong, with the field.
    """
    groups = FORMS.get(section)
    if groups is None:
        raise NotFoundException
    table: dict[str, object] = {"name": form.get("name", "").strip()}
    if when := _condition(form):
        table["when"] = when
    for _, fields in groups:
        for field in fields:
            _put(table, field, form.get(field.key, "").strip())
    try:
        return constraint_from(table) if section == "constraints" else preference_from(table)
    except DocumentInvalid as error:
        first = error.problems[0]
        # A problem of the whole rule is shown at no field, least of all at its name.
        lacking = "order" if section == "preferences" else None
        raise RequestInvalid(first.message, parameter=first.path or lacking) from error


def with_rule(text: str, section: str, place: int | None, rule: Constraint | Preference) -> Amended:
    """The text with a rule in place of another, or after the last if `place` is None."""
    body = _loaded(text)
    rules = list(rules_of(body, section))
    if place is None:
        rules.append(rule)
    else:
        rule_at(body, section, place)
        rules[place] = rule
    return _amended(text, body, section, rules)


def moved(text: str, section: str, place: int, step: int) -> Amended:
    """The text with a rule moved by `step` places."""
    body = _loaded(text)
    rules = list(rules_of(body, section))
    rule = rule_at(body, section, place)
    del rules[place]
    rules.insert(max(0, min(place + step, len(rules))), rule)
    return _amended(text, body, section, rules)


def without(text: str, section: str, place: int) -> Amended:
    """The text without a rule."""
    body = _loaded(text)
    rules = list(rules_of(body, section))
    rule_at(body, section, place)
    del rules[place]
    return _amended(text, body, section, rules)


def with_case(text: str, encoded: str) -> Amended:
    """The text with an offered test case after its others."""
    body = _loaded(text)
    return _amended(text, body, "tests", [*body.tests, offered(encoded, body)])


def _loaded(text: str) -> PolicyBody:
    body = body_of(text)
    if body is None:
        raise RequestInvalid("the text has mistakes; correct them in the code", parameter="text")
    return body


def _amended(
    text: str, body: PolicyBody, section: str, rules: Iterable[Constraint | Preference | Case]
) -> Amended:
    try:
        return amended(text, msgspec.structs.replace(body, **{section: tuple(rules)}))
    except DocumentInvalid as error:
        first = error.problems[0]
        raise RequestInvalid(str(first)[:500], parameter="name") from error


def _condition(form: Mapping[str, str]) -> str:
    """The rows of the form as an expression, or the text if that was chosen."""
    if form.get("written", "rows") == "text":
        return form.get("when", "").strip()
    rows = [row for number in range(ROWS_MAX) if (row := _row(form, number)) is not None]
    try:
        return when_of(rows) or ""
    except ExpressionInvalid as error:
        raise RequestInvalid(error.problems[0].message, parameter="when") from error


def _row(form: Mapping[str, str], number: int) -> Row | None:
    name = form.get(f"row{number}.fact", "")
    field = FACTS.get(name)
    if field is None:
        return None
    operator = form.get(f"row{number}.operator") or field.operators[0]
    if operator not in field.operators:
        message = f"{name} is compared by {', '.join(field.operators)}"
        raise RequestInvalid(message, parameter=f"row{number}.operator")
    said = form.get(f"row{number}.value", "").strip()
    if operator in ("in", "not in"):
        values = tuple(_scalar(field, part.strip()) for part in said.split(",") if part.strip())
    else:
        values = (_scalar(field, said),)
    key = form.get(f"row{number}.key", "").strip() if field.has_keys else ""
    if field.has_keys and not key:
        message = f"which one of the {name}?"
        raise RequestInvalid(message, parameter=f"row{number}.key")
    return Row(name, operator, values, key)


def _scalar(field: FactField, said: str) -> str | int | float | bool:
    if field.kind == "truth" or said in ("true", "false"):
        return said != "false"
    if field.kind in ("number", "counts"):
        for read in (int, float):
            try:
                return read(said)
            except ValueError:
                continue
        raise RequestInvalid(f"{field.name} is compared with a number", parameter="when")
    return said


def _put(table: dict[str, object], field: Field, said: str) -> None:
    if not said:
        return
    outer, _, inner = field.key.partition(".")
    value = _read(field, said)
    if not inner:
        table[outer] = value
        return
    within = table.setdefault(outer, {})
    assert isinstance(within, dict)
    within[inner] = value


def _read(field: Field, said: str) -> object:
    match field.kind:
        case "words":
            return [word.strip() for word in said.split(",") if word.strip()]
        case "switch":
            return said in ("on", "true", "yes")
        case "truth":
            return said in ("true", "yes", "on")
        case "number":
            return _count(field, said)
        case "shares":
            pairs = [part.partition("=") for part in said.split(",") if part.strip()]
            return {name.strip(): _count(field, share.strip()) for name, _, share in pairs}
    return said


def _count(field: Field, said: str) -> int | float:
    for read in (int, float):
        try:
            return read(said)
        except ValueError:
            continue
    raise RequestInvalid("a number", parameter=field.key)


def _shown(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Mapping():
            return ", ".join(f"{name}={share}" for name, share in value.items())
        case list():
            return ", ".join(map(str, value))
    return str(value)
