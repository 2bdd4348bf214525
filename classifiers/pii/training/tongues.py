"""Parts of texts in Hindi and eight European languages: words, places, bodies and names."""

import random
from collections.abc import Callable

from classifiers.pii.training.people import People
from classifiers.pii.training.words import Pools, pick


LANGUAGES = ("de", "fr", "es", "it", "nl", "pl", "pt")
_VOWELS = "аеёиоуыэюя"


class Tongues:
    """Slot name → maker, for the templates in other languages than everyday English."""

    def __init__(self, pools: Pools, people: People, city: Callable[[random.Random], str]) -> None:
        self._pools = pools
        self._people = people
        self._city = city

    def makers(self) -> dict[str, Callable[[random.Random], str]]:
        found: dict[str, Callable[[random.Random], str]] = {
            "person_ru": self._russian,
            "person_ru_gen": lambda rng: self._russian(rng, genitive=True),
            "first_ru": lambda rng: self._russian_first(rng)[0],
            "last_ru": lambda rng: self._russian_last(rng, woman=rng.random() < 0.3),
            "patronymic_ru": lambda rng: self._patronymic(rng, woman=rng.random() < 0.5),
            "ru_words": lambda rng: self._words(rng, "ru"),
            "ru_place": lambda rng: pick(rng, self._pools["ru_place"]),
            "ru_body": lambda rng: pick(rng, self._pools["ru_body"]),
        }
        found |= {
            "en_place": lambda rng: self._named(rng, pick(rng, self._pools["en_place"])),
            "en_body": lambda rng: self._named(rng, pick(rng, self._pools["en_body"])),
            "hi_words": lambda rng: self._words(rng, "hi"),
            "hi_place": lambda rng: pick(rng, self._pools["hi_place"]).replace(
                "*", self._people.hindi(rng)
            ),
            "hi_body": lambda rng: pick(rng, self._pools["hi_body"]).replace(
                "*", pick(rng, self._pools["hi_city"])
            ),
        }
        for language in LANGUAGES:
            found |= self._latin(language)
        return found

    def _latin(self, language: str) -> dict[str, Callable[[random.Random], str]]:
        return {
            f"person_{language}": lambda rng: self._person(rng, language),
            f"{language}_words": lambda rng: self._words(rng, language),
            f"{language}_place": lambda rng: self._place(rng, language),
            f"{language}_body": lambda rng: self._named(
                rng, pick(rng, self._pools[f"{language}_body"])
            ),
        }

    def _words(self, rng: random.Random, language: str) -> str:
        """One to six words, often with a capital in front, as sentences begin."""
        words = [
            pick(rng, self._pools[f"{language}_words"]) for _ in range(1 + int(rng.random() * 6))
        ]
        if rng.random() < 0.4:
            words[0] = words[0][:1].upper() + words[0][1:]
        return " ".join(words)

    def _place(self, rng: random.Random, language: str) -> str:
        if rng.random() < 0.3:
            return pick(rng, self._pools[f"{language}_city"])
        return self._named(rng, pick(rng, self._pools[f"{language}_place"]))

    def _named(self, rng: random.Random, form: str) -> str:
        name = self._city(rng) if rng.random() < 0.75 else pick(rng, self._pools["surname"])
        return form.replace("*", name if form[:1] != "*" or form[1:2] == " " else name.title())

    def _person(self, rng: random.Random, language: str) -> str:
        roll = rng.random()
        if roll < 0.45:
            return self._people.local(rng)
        first = pick(rng, self._pools[f"{language}_first"])
        last = self._people.last(rng, "eu" if rng.random() < 0.3 else "any")
        if roll < 0.53:
            return first
        if roll < 0.6:
            return f"{first} {pick(rng, self._pools[f'{language}_first'])} {last}"
        if roll < 0.66 and language in {"es", "pt"}:
            return f"{first} {last} {self._people.last(rng, 'any')}"
        return f"{first} {last}"

    def _russian_first(self, rng: random.Random) -> tuple[str, bool]:
        woman = rng.random() < 0.3
        return pick(rng, self._pools["ru_woman_first" if woman else "ru_first"]), woman

    def _russian_last(self, rng: random.Random, *, woman: bool) -> str:
        if rng.random() < 0.3:
            name = pick(rng, self._pools["ru_other_surname"])
            return name[:-2] + "ая" if woman and name.endswith("ий") else name
        return pick(rng, self._pools["ru_surname"]) + ("а" if woman else "")

    def _patronymic(self, rng: random.Random, *, woman: bool) -> str:
        stem = pick(rng, self._pools["ru_first"])
        stem = stem[:-1] + "е" if stem[-1] in "йь" else stem + "о"
        return stem + ("вна" if woman else "вич")

    def _russian(self, rng: random.Random, *, genitive: bool = False) -> str:
        """In one of the usual orders, sometimes in the genitive."""
        first, woman = self._russian_first(rng)
        last = self._russian_last(rng, woman=woman)
        if genitive:
            first, last = _genitive(first, woman=woman), _genitive(last, woman=woman)
        roll = rng.random()
        if roll < 0.5:
            return f"{first} {last}"
        if roll < 0.62:
            return last
        if roll < 0.7:
            return first
        if roll < 0.8:
            return f"{first[0]}. {self._patronymic(rng, woman=woman)[0]}. {last}"
        if roll < 0.84:
            return f"{first[0]}. {last}"
        if genitive or roll < 0.9:
            return f"{first} {last}"
        middle = self._patronymic(rng, woman=woman)
        return f"{last}, {first} {middle}" if roll < 0.95 else f"{first} {middle} {last}"


def _genitive(name: str, *, woman: bool) -> str:
    if name.endswith("ий") and len(name) > 6:  # A surname, not a first name.
        return name[:-2] + "ого"
    if name[-1] == "а":
        return name[:-1] + ("ой" if name.endswith(("ова", "ева", "ина", "ёва")) else "ы")
    if name[-1] == "я":
        return name[:-1] + "и"
    if name[-1] in "йь":
        return name[:-1] + "я"
    return name if woman or name[-1] in _VOWELS else name + "а"
