"""Fills templates: every slot becomes text, and a labelled span if the slot has a label."""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from classifiers.pii.training.machines import Machines
from classifiers.pii.training.people import People
from classifiers.pii.training.places import Places, digits, number
from classifiers.pii.training.posts import Posts
from classifiers.pii.training.tongues import LANGUAGES, Tongues
from classifiers.pii.training.words import Pools, pick


class Span(NamedTuple):
    start: int
    end: int
    label: str


class Sample(NamedTuple):
    """A text and its labelled spans, in order."""

    text: str
    spans: tuple[Span, ...]


_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LABELS = {
    "address": "ADDRESS", "address1": "ADDRESS", "address_lower": "ADDRESS", "address_upper": "ADDRESS",
    "street": "ADDRESS", "street_name": "ADDRESS", "zip": "ADDRESS", "user": "USERNAME",
    "city": "LOCATION", "city_lower": "LOCATION", "country": "LOCATION", "org": "ORGANIZATION",
    "hi_city": "LOCATION", "hi_org": "ORGANIZATION", "hi_address": "ADDRESS", "in_address": "ADDRESS",
    "phone": "PHONE", "pw": "PASSWORD", "dob": "DOB", "empid": "EMPLOYEE_ID", "mrn": "MRN",
    "passport": "PASSPORT", "dl": "DRIVER_LICENSE", "acct": "BANK_ACCOUNT", "natid": "NATIONAL_ID",
    "plate": "VEHICLE_REG",
}  # fmt: skip
_PEOPLE = (
    "person",
    "first",
    "last",
    "patronymic",
    "formal",
    "hi_person",
    "hi_first",
    "famous",
    "figure",
    "in_person",
    "in_first",
)


def label_of(slot: str) -> str:
    """The label of a slot's filling; empty if it is not to be found."""
    if slot.startswith(_PEOPLE):
        return "PERSON"
    if slot.endswith("_address"):
        return "ADDRESS"
    if slot.endswith("_body"):
        return "ORGANIZATION"
    return _LABELS.get(slot) or ("LOCATION" if slot.endswith(("_city", "_place")) else "")


class Filler:
    """Templates → samples. The same generator state gives the same text."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        people, places = People(pools), Places(pools)
        self._makers: dict[str, Callable[[random.Random], str]] = {
            "person": people.full,
            "person_lower": lambda rng: people.full(rng).lower(),
            "person_upper": lambda rng: people.full(rng).upper(),
            "in_person": lambda rng: people.full(rng, "in"),
            "in_person_lower": lambda rng: people.full(rng, "in").lower(),
            "in_first": lambda rng: people.first(rng, "in"),
            "hi_person": people.hindi,
            "first": people.first,
            "first_lower": lambda rng: people.first(rng).lower(),
            "last": people.last,
            "last1": people.last,
            "formal": people.last,
            "address": places.address,
            "address1": places.line,
            "address_lower": lambda rng: places.line(rng).lower(),
            "address_upper": lambda rng: places.address(rng).upper(),
            "in_address": places.indian,
            "hi_address": lambda rng: places.address(rng, "hi"),
            "street": places.street,
            "street_name": places.street_name,
            "zip": places.code,
        }
        self._makers |= self._identifiers(people)
        self._makers["person_no"] = people.local
        for country in (*LANGUAGES, "no"):
            self._makers[f"{country}_address"] = _bind(places.address, country)
        self._makers |= Posts(pools, people).makers()
        self._makers |= Tongues(pools, people, self._city).makers()
        self._makers |= Machines(pools).makers()

    def _identifiers(self, people: People) -> dict[str, Callable[[random.Random], str]]:
        """Everything that is neither a name nor an address."""
        return {
            "city_lower": lambda rng: self._city(rng).lower(),
            "city": self._city,
            "org": self._organisation,
            "user": people.username,
            "email": self._email(people),
            "phone": _phone,
            "pw": self._password,
            "dob": _date,
            "date": _date,
            "time": lambda rng: f"{int(rng.random() * 24)}:{digits(rng, 1)}0",
            "year": lambda rng: str(1900 + int(rng.random() * 126)),
            "weekday": lambda rng: pick(rng, _WEEKDAYS),
            "n": lambda rng: number(rng, 90),
            "num": lambda rng: digits(rng, 3 + int(rng.random() * 4)).lstrip("0") or "7",
            "money": _money,
            "code": _code,
            "empid": _identifier,
            "mrn": _identifier,
            "passport": lambda rng: (
                pick(rng, "ACJKLMNPRSTUXZ") + digits(rng, 7 + int(rng.random() * 2))
            ),
            "dl": _licence,
            "acct": lambda rng: digits(rng, 8 + int(rng.random() * 8)),
            "natid": _identifier,
            "plate": _plate,
            "ip": lambda rng: ".".join(number(rng, 250) for _ in range(4)),
            "CONST": lambda rng: (
                f"{pick(rng, ('API', 'DB', 'MAX', 'LOG'))}_{pick(rng, ('KEY', 'URL', 'LEVEL', 'SIZE'))}"
            ),
            "func": lambda rng: (
                f"{pick(rng, ('get', 'load', 'sum', 'is'))}_{pick(rng, ('items', 'user', 'total', 'name'))}"
            ),
            "Role": lambda rng: pick(rng, ("Employee", "Contractor", "Consultant", "Tenant")),
        }

    def __call__(self, template: str, rng: random.Random) -> Sample:
        """One sample of a template."""
        text = _CHOICE.sub(lambda match: pick(rng, match[1].split("|")), template)
        text = _CHOICE.sub(lambda match: pick(rng, match[1].split("|")), text)
        text = text.replace("\\n", "\n").replace("\\t", "\t")
        parts: list[str] = []
        spans: list[Span] = []
        at = reached = 0
        for match in _SLOT.finditer(text):
            slot = match[1]
            value = self._value(slot, rng)
            parts += [text[reached : match.start()], value]
            at += match.start() - reached
            if (label := label_of(slot)) and value:
                spans.append(Span(at, at + len(value), label))
            at += len(value)
            reached = match.end()
        parts.append(text[reached:])
        return Sample("".join(parts), tuple(spans))

    def _value(self, slot: str, rng: random.Random) -> str:
        maker = self._makers.get(slot)
        return maker(rng) if maker else pick(rng, self._pools[slot])

    def _city(self, rng: random.Random) -> str:
        pools = (
            "us_city",
            "uk_city",
            "in_city",
            "de_city",
            "fr_city",
            "es_city",
            "it_city",
            "other_city",
        )
        roll = rng.random()
        if roll < 0.25 and self._pools.get("place"):
            return pick(rng, self._pools["place"])
        return pick(rng, self._pools[pick(rng, pools)])

    def _organisation(self, rng: random.Random) -> str:
        roll = rng.random()
        if roll < 0.3:
            return pick(rng, self._pools["org_full"])
        if roll < 0.45 and self._pools.get("company"):
            return pick(rng, self._pools["company"])
        if roll < 0.53:
            names = [pick(rng, self._pools["surname"]) for _ in range(3)]
            forms = (f"{names[0]}, {names[1]} and {names[2]}", f"{names[0]} {names[1]}",
                     f"{names[0]}-{names[1]}", f"{names[0]} & {names[1]}", f"{names[0]} PLC")  # fmt: skip
            return pick(rng, forms)
        stem = pick(rng, self._pools["org_stem" if roll < 0.78 else "surname"])
        return f"{stem} {pick(rng, self._pools['org_kind'])}"

    def _email(self, people: People) -> Callable[[random.Random], str]:
        hosts = (
            "gmail.com",
            "outlook.com",
            "yahoo.co.in",
            "corp-mail.net",
            "northwind.io",
            "uni.edu",
        )
        return lambda rng: f"{people.username(rng)}@{pick(rng, hosts)}"

    def _password(self, rng: random.Random) -> str:
        word = pick(rng, self._pools["pw_word"])
        if rng.random() < 0.5:
            return f"{word}{pick(rng, '!@#$%&*')}{digits(rng, 2 + int(rng.random() * 3))}"
        alphabet = "abcdefghkmnpqrstuvwxyzABCDEFGHKMNP23456789!@#$%&*"
        return "".join(pick(rng, alphabet) for _ in range(8 + int(rng.random() * 6)))


def _bind(
    maker: Callable[[random.Random, str], str], country: str
) -> Callable[[random.Random], str]:
    return lambda rng: maker(rng, country)


def _phone(rng: random.Random) -> str:
    forms = ("+91 ##### #####", "0## ### ####", "+44 7### ######", "(###) ###-####", "###-###-####",
             "+49 ## #######", "+33 # ## ## ## ##", "+1 ### ### ####", "9#########", "0### ######",
             "+## ### ### ###", "## ## ## ##")  # fmt: skip
    return "".join(digits(rng, 1) if char == "#" else char for char in pick(rng, forms))


def _date(rng: random.Random) -> str:
    day, month, year = (
        1 + int(rng.random() * 28),
        1 + int(rng.random() * 12),
        1930 + int(rng.random() * 96),
    )
    name = _MONTHS[month - 1]
    forms = (f"{day:02}/{month:02}/{year}", f"{year}-{month:02}-{day:02}", f"{day} {name} {year}",
             f"{name} {day}, {year}", f"{day}.{month}.{year}", f"{day} {name[:3]} {year}", f"{day}-{name[:3]}-{year}")  # fmt: skip
    return pick(rng, forms)


def _money(rng: random.Random) -> str:
    amount = f"{1 + int(rng.random() * 900)},{digits(rng, 3)}"
    return pick(
        rng, (f"${amount}", f"Rs {amount}", f"{amount} EUR", f"£{amount}", f"{amount} rupees")
    )


def _code(rng: random.Random) -> str:
    head = "".join(pick(rng, "ABCDEFGHKLMNPRSTVX") for _ in range(2 + int(rng.random() * 2)))
    return pick(
        rng,
        (
            f"{head}-{digits(rng, 5)}",
            f"{head}{digits(rng, 4)}",
            digits(rng, 8),
            f"#{digits(rng, 6)}",
        ),
    )


def _identifier(rng: random.Random) -> str:
    head = "".join(pick(rng, "ABCDEFGHKLMNPRSTVX") for _ in range(1 + int(rng.random() * 3)))
    count = 5 + int(rng.random() * 5)
    mark = pick(rng, ("", "", "-", "/"))
    return pick(rng, (f"{head}{mark}{digits(rng, count)}", digits(rng, count + 2),
                      f"{digits(rng, 3)}-{digits(rng, 2)}-{digits(rng, 3)}"))  # fmt: skip


def _licence(rng: random.Random) -> str:
    return pick(rng, (pick(rng, _INITIALS) + digits(rng, 7 + int(rng.random() * 6)), digits(rng, 9),
                      f"{pick(rng, ('KA', 'MH', 'DL'))}{digits(rng, 2)} {digits(rng, 11)}"))  # fmt: skip


_INITIALS = "ABCDEFGHKLMNPRSTW"


def _plate(rng: random.Random) -> str:
    letters = "".join(pick(rng, _INITIALS) for _ in range(2))
    return pick(rng, (f"{pick(rng, ('MH', 'KA', 'DL', 'TN'))} {digits(rng, 2)} {letters} {digits(rng, 4)}",
                      f"{letters}{digits(rng, 2)} {letters}{pick(rng, _INITIALS)}",
                      f"{pick(rng, ('B', 'M', 'HH'))}-{letters} {digits(rng, 3)}"))  # fmt: skip
