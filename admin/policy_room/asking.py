"""Builds hypothetical requests: facts from a form's fields, a record, or a pasted body.

A form names facts as policies do. A field left empty takes the value of a harmless request; an
error names its field.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from admin.policy_room.reader import PolicyReader
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, RequestInvalid
from gateway.identity import accounts_of
from gateway.supposing import Supposer
from gateway.types import Principal
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import Facts, TargetFacts
from policies.forms import FactField, fact_fields
from policies.problems import FactsInvalid


PREFIX: Final = "fact."
BODY_CHARACTERS_MAX: Final = 200_000
ENTRIES_MAX: Final = 100
EXAMPLES_NOTE: Final = ", on example targets: no worker has reported its own yet"
_FIRST: Final = (
    *("model_requested", "data_class", "findings", "complexity_tier", "complexity"),
    *("input_tokens_estimate", "workspace", "project", "labels", "has_tools"),
)
_FIELDS: Final = {field.name: field for field in fact_fields()}
_UNSAID: Final = ("organisation", "warm_target", "warm_tokens")
"""Whose organisation it is says the path; what is warm is a thing of running workers."""


class Asked(Struct, frozen=True):
    """Facts to decide, and where they come from in words."""

    facts: Facts
    origin: str
    request_id: str = ""


def fields_in_order() -> tuple[list[FactField], list[FactField]]:
    """The facts of the form: those that are asked for most, and the others."""
    rest = [each for name, each in _FIELDS.items() if name not in (*_FIRST, *_UNSAID)]
    return [_FIELDS[name] for name in _FIRST], rest


class Asker:
    """Makes facts of what somebody wants to know."""

    def __init__(self, reader: PolicyReader, settings: Settings, clock: Clock) -> None:
        self._reader = reader
        self._settings = settings
        self._clock = clock

    async def ask(self, organisation: str, said: Mapping[str, str]) -> Asked:
        """Facts of a recorded `request`, a pasted `body`, or of the fields `fact.…`.

        Raises:
            RequestInvalid: one of them is wrong; `parameter` is the field.
        """
        if request_id := said.get("request", "").strip():
            return await self._recorded(organisation, request_id)
        if body := said.get("body", "").strip():
            return await self._pasted(organisation, body, said)
        targets = await self._reader.targets()
        origin = "the fields of the form" + ("" if targets else EXAMPLES_NOTE)
        return Asked(_from_fields(organisation, said, targets or EXAMPLE_TARGETS), origin)

    async def _recorded(self, organisation: str, request_id: str) -> Asked:
        found = await self._reader.archive.facts_of(organisation, request_id[:200])
        if found is None:
            message = (
                "this organisation has no decided request with this id, or it is not stored yet"
            )
            raise RequestInvalid(message, parameter="request")
        record, facts = found
        return Asked(facts, f"request {record.request_id} as it was recorded", record.request_id)

    async def _pasted(self, organisation: str, body: str, said: Mapping[str, str]) -> Asked:
        if len(body) > BODY_CHARACTERS_MAX:
            message = f"longer than {BODY_CHARACTERS_MAX} characters"
            raise RequestInvalid(message, parameter="body")
        targets = await self._reader.targets() or EXAMPLE_TARGETS
        place = _from_fields(organisation, said, targets)
        workspace, project = place.workspace, place.project
        accounts = accounts_of(organisation, workspace, project, place.key_id)
        asker = Principal(
            place.key_id, "example", organisation, workspace, project, place.labels, None, accounts
        )
        try:
            supposer = Supposer(self._settings, self._clock)
        except ConfigurationInvalid as error:
            message = "the tables that requests are inspected with cannot be read here"
            raise RequestInvalid(message, parameter="body") from error
        try:
            supposed = await supposer.suppose(body.encode(), targets, asker)
        except (msgspec.DecodeError, RequestInvalid, RecursionError) as error:
            raise RequestInvalid(f"no request: {error}"[:300], parameter="body") from error
        finally:
            supposer.close()
        return Asked(supposed.facts, f"the pasted body: {supposed}")


def _from_fields(
    organisation: str, said: Mapping[str, str], targets: tuple[TargetFacts, ...]
) -> Facts:
    example: dict[str, object] = {"organisation": organisation}
    for name, field in _FIELDS.items():
        text = said.get(f"{PREFIX}{name}", "").strip()
        if text and name not in _UNSAID:
            example[name] = _value(field, text)
    try:
        return facts_from_example(example, targets)
    except FactsInvalid as error:
        first = error.problems[0]
        raise RequestInvalid(first.message, parameter=f"{PREFIX}{first.path}") from error


def _value(field: FactField, text: str) -> object:
    match field.kind:
        case "truth":
            return text in ("true", "yes", "on")
        case "number":
            return _number(field.name, text)
        case "labels":
            return [part.strip() for part in text.split(",") if part.strip()][:ENTRIES_MAX]
        case "counts":
            return {name: _number(field.name, count) for name, count in _pairs(field.name, text)}
        case "headers":
            return dict(_pairs(field.name, text))
    return text


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(",")[:ENTRIES_MAX]:
        key, sign, value = part.partition("=")
        if not sign or not key.strip():
            message = "written as NAME=VALUE, separated by commas"
            raise RequestInvalid(message, parameter=f"{PREFIX}{name}")
        yield key.strip(), value.strip()


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise RequestInvalid("a number", parameter=f"{PREFIX}{name}") from None
