"""Postal addresses as sixteen countries write them, complete and in part."""

import random
from collections.abc import Callable

from classifiers.pii.training.words import Pools, pick


_COUNTRIES: tuple[str, ...] = (
    "us",
    "us",
    "uk",
    "uk",
    "in",
    "in",
    "in",
    "in",
    "de",
    "fr",
    "es",
    "it",
    "nl",
    "pl",
)
_COUNTRIES += ("no", "no", "pt", "other", "military", "any", "any")
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


def digits(rng: random.Random, count: int) -> str:
    return "".join(chr(48 + int(rng.random() * 10)) for _ in range(count))


def number(rng: random.Random, limit: int = 999) -> str:
    return str(1 + int(rng.random() ** 2 * limit))


def _letter(rng: random.Random) -> str:
    return pick(rng, _LETTERS)


class Places:
    """Draws streets, codes and addresses."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def _of(self, rng: random.Random, name: str) -> str:
        return pick(rng, self._pools[name])

    def _name(self, rng: random.Random, name: str) -> str:
        """A street's own name: from the list, or a surname."""
        return self._of(rng, name if rng.random() < 0.5 else "surname")

    def street_name(self, rng: random.Random) -> str:
        kind = self._of(rng, pick(rng, ("us_kind", "uk_kind")))
        return f"{self._name(rng, pick(rng, ('us_street', 'uk_street')))} {kind}"

    def street(self, rng: random.Random) -> str:
        """Street and number in the order of some country."""
        country = pick(rng, ("us", "uk", "in", "de", "fr", "es", "it", "nl", "pl", "no", "pt"))
        return self._street_of(rng, country)

    def _street_of(self, rng: random.Random, country: str) -> str:
        house = number(rng, 250)
        if country in {"us", "uk"}:
            name = f"{self._name(rng, country + '_street')} {self._of(rng, country + '_kind')}"
            side = pick(rng, ("N ", "S. ", "West ", "E ")) if rng.random() < 0.1 else ""
            return f"{number(rng, 9999 if country == 'us' else 300)} {side}{name}"
        if country == "in":
            return f"{number(rng, 400)}{pick(rng, (', ', ' '))}{self._of(rng, 'in_street')}"
        if country == "de":
            glue = "-" if rng.random() < 0.15 else ""
            kind = self._of(rng, "de_kind")
            return f"{self._name(rng, 'de_street')}{glue}{kind.title() if glue else kind} {house}"
        if country == "fr":
            extra = pick(rng, ("", "", "", " bis", " ter"))
            mark = pick(rng, (" ", ", "))
            return f"{house}{extra}{mark}{self._of(rng, 'fr_kind')} {self._name(rng, 'fr_street')}"
        if country in {"es", "it", "pt"}:
            mark = pick(rng, (" ", ", ", ", nº ")) if country != "it" else pick(rng, (" ", ", "))
            return f"{self._of(rng, country + '_kind')} {self._name(rng, country + '_street')}{mark}{house}"
        if country == "nl":
            return f"{self._name(rng, 'nl_street')}{self._of(rng, 'nl_kind')} {house}{pick(rng, ('', '', 'a', '-II'))}"
        if country == "pl":
            flat = f"/{number(rng, 60)}" if rng.random() < 0.5 else ""
            return f"{pick(rng, ('ul. ', 'ul. ', 'al. ', 'os. ', ''))}{self._name(rng, 'pl_street')} {house}{flat}"
        name = self._name(rng, "no_street")
        kind = self._of(rng, "no_kind")
        spaced = " " + kind.title() if rng.random() < 0.1 else kind
        return f"{name}{spaced} {house}{pick(rng, ('', '', ' B', ' A'))}"

    def code(self, rng: random.Random) -> str:
        """A postal code of some country."""
        forms = (
            digits(rng, 5),
            digits(rng, 5),
            digits(rng, 6),
            f"{digits(rng, 3)} {digits(rng, 3)}",
            digits(rng, 4),
            f"{digits(rng, 2)}-{digits(rng, 3)}",
            f"{digits(rng, 3)} {digits(rng, 2)}",
            f"{digits(rng, 4)} {_letter(rng)}{_letter(rng)}",
            f"{digits(rng, 5)}-{digits(rng, 4)}",
            self._uk_code(rng),
            f"{_letter(rng)}{digits(rng, 1)}{_letter(rng)} {digits(rng, 1)}{_letter(rng)}{digits(rng, 1)}",
        )
        return pick(rng, forms)

    @staticmethod
    def _uk_code(rng: random.Random) -> str:
        area = _letter(rng) + (_letter(rng) if rng.random() < 0.7 else "")
        return f"{area}{number(rng, 40)} {digits(rng, 1)}{_letter(rng)}{_letter(rng)}"

    def address(self, rng: random.Random, country: str = "") -> str:
        """An address; its parts are joined by commas or line breaks."""
        country = country or pick(rng, _COUNTRIES)
        makers: dict[str, Callable[[random.Random], list[str]]] = {
            "us": self._us,
            "uk": self._uk,
            "in": self._indian,
            "other": self._other,
            "military": self._military,
            "any": self._mixed,
            "hi": self._hindi,
        }
        maker = makers.get(country)
        parts = maker(rng) if maker else self._continental(rng, country)
        if country not in {"military", "hi"} and rng.random() < 0.12:
            parts.append(self._of(rng, "country"))
        roll = rng.random()
        mark = ", " if roll < 0.72 else "\n" if roll < 0.86 else " " if roll < 0.96 else "\n "
        return mark.join(parts)

    def line(self, rng: random.Random) -> str:
        """An address on one line and without a line break, for tables and JSON."""
        return self.address(rng).replace("\n", ", ").replace("'", "").replace("  ", " ")

    def indian(self, rng: random.Random) -> str:
        return self.address(rng, "in")

    def _us(self, rng: random.Random) -> list[str]:
        street = self._street_of(rng, "us")
        extra = pick(rng, ("Apt {}", "Suite {}", "#{}", "Unit {}", "Apt. {}B", "Floor {}"))
        city = self._of(rng, "us_city") if rng.random() < 0.6 else self._of(rng, "surname")
        tail = f"{self._of(rng, 'us_state')} {digits(rng, 5)}"
        parts = [street, extra.format(number(rng))] if rng.random() < 0.4 else [street]
        return [*parts, city, tail] if rng.random() < 0.85 else [*parts, city]

    def _uk(self, rng: random.Random) -> list[str]:
        parts = [self._street_of(rng, "uk"), self._of(rng, "uk_city")]
        if rng.random() < 0.3:
            parts.insert(0, self._of(rng, "uk_house"))
        if rng.random() < 0.85:
            code = self._uk_code(rng)
            if rng.random() < 0.5:
                parts[-1] += " " + code
            else:
                parts.append(code)
        return parts

    def _indian(self, rng: random.Random) -> list[str]:
        flat = pick(
            rng,
            (
                number(rng),
                f"{number(rng, 30)}/{number(rng, 90)}",
                f"{_letter(rng)}-{number(rng)}",
                f"{number(rng, 20)}-{number(rng, 20)}-{number(rng)}/{_letter(rng)}",
                f"{number(rng)}{_letter(rng)}",
            ),
        )
        parts = [f"{self._of(rng, 'in_house')} {flat}"] if rng.random() < 0.7 else [flat]
        if rng.random() < 0.3:
            parts.append(
                pick(
                    rng, ("2nd Floor", "Ground Floor", "Tower B", "Wing A", "Block C", "3rd floor")
                )
            )
        if rng.random() < 0.45:
            parts.append(self._of(rng, "in_building"))
        if rng.random() < 0.6:
            parts.append(self._of(rng, "in_street"))
        if rng.random() < 0.3:
            parts.append(f"{self._of(rng, 'in_near')} {self._of(rng, 'in_mark')}")
        if rng.random() < 0.7:
            parts.append(self._of(rng, "in_area"))
        city = self._of(rng, "in_city")
        pin = digits(rng, 6) if rng.random() < 0.7 else f"{digits(rng, 3)} {digits(rng, 3)}"
        roll = rng.random()
        if roll < 0.35:
            parts += [city, f"{self._of(rng, 'in_state')} {pin}"]
        elif roll < 0.75:
            parts.append(f"{city}{pick(rng, (' - ', '-', ' ', ' – '))}{pin}")
        else:
            parts.append(city)
        return parts

    def _continental(self, rng: random.Random, country: str) -> list[str]:
        codes = {
            "nl": f"{digits(rng, 4)} {_letter(rng)}{_letter(rng)}",
            "pl": f"{digits(rng, 2)}-{digits(rng, 3)}",
            "no": pick(rng, (digits(rng, 4), f"{digits(rng, 3)} {digits(rng, 2)}")),
            "pt": pick(
                rng, (f"{digits(rng, 4)}-{digits(rng, 3)}", f"{digits(rng, 5)}-{digits(rng, 3)}")
            ),
        }
        parts = [self._street_of(rng, country)]
        if rng.random() < 0.15:
            parts.append(
                pick(rng, ("3. OG", "2º B", "Bâtiment C", "int. 4", "1. Stock", "Apt. 12"))
            )
        city = self._of(rng, f"{country}_city") if rng.random() < 0.75 else self._of(rng, "surname")
        code = codes.get(country) or digits(rng, 5)
        roll = rng.random()
        if roll < 0.6:
            parts.append(f"{code} {city}")
        elif roll < 0.85:
            parts += [city, code]
        else:
            parts.append(city)
        return parts

    def _other(self, rng: random.Random) -> list[str]:
        city = self._of(rng, "other_city")
        head = pick(
            rng,
            (
                f"Blk {number(rng)} {self._name(rng, 'uk_street')} Avenue {number(rng, 9)} #{digits(rng, 2)}-{digits(rng, 3)}",
                f"Office {number(rng)}, {self._of(rng, 'surname')} Tower",
                f"{number(rng, 9)}-{number(rng, 30)}-{number(rng, 20)} {self._of(rng, 'ea_last')}cho",
                f"PO Box {number(rng, 9999)}",
                f"P.O. Box {number(rng, 9999)}",
                f"{number(rng)} {self._name(rng, 'uk_street')} Rd",
                f"Level {number(rng, 40)}, {number(rng)} {self._name(rng, 'uk_street')} St",
            ),
        )
        return [head, city, self.code(rng)] if rng.random() < 0.7 else [head, city]

    def _military(self, rng: random.Random) -> list[str]:
        area = (
            f"{pick(rng, ('APO', 'FPO', 'DPO'))} {pick(rng, ('AE', 'AP', 'AA'))} {digits(rng, 5)}"
        )
        ship = f"{pick(rng, ('USS', 'USNS', 'HMS'))} {self._of(rng, 'surname')}"
        unit = f"{pick(rng, ('Unit', 'PSC', 'CMR'))} {number(rng, 9999)} Box {number(rng, 9999)}"
        corner = f"the corner of {self.street_name(rng)} and {self.street(rng)}"
        return [corner] if rng.random() < 0.4 else [pick(rng, (ship, unit)), area]

    def _mixed(self, rng: random.Random) -> list[str]:
        """As address generators mix them: a street of one country in a town of another."""
        street = f"{number(rng)} {self.street(rng)}" if rng.random() < 0.3 else self.street(rng)
        parts = [street]
        if rng.random() < 0.35:
            parts.append(f"{pick(rng, ('Apt.', 'Suite', 'Unit', 'Flat'))} {digits(rng, 3)}")
        city = self._of(rng, pick(rng, ("surname", "other_city", "no_city", "it_city")))
        parts.append(city.upper() if rng.random() < 0.2 else city)
        if rng.random() < 0.7:
            parts.append(
                f"{pick(rng, ('', '', _letter(rng) + _letter(rng) + ' '))}{self.code(rng)}"
            )
        return parts

    def _hindi(self, rng: random.Random) -> list[str]:
        area = f"{pick(rng, self._pools['hi_last'])} {pick(rng, ('नगर', 'कॉलोनी', 'विहार', 'मार्ग', 'रोड', 'गली'))}"
        house = f"{pick(rng, ('मकान नंबर', 'फ्लैट', 'प्लॉट नंबर', ''))} {number(rng)}".strip()
        tail = f"{self._of(rng, 'hi_city')}{pick(rng, (' - ', ' '))}{digits(rng, 6)}"
        return (
            [house, area, tail] if rng.random() < 0.8 else [house, area, self._of(rng, "hi_city")]
        )
