"""Names as people write them: from many places, complete, in part, with initials and titles."""

import random

from classifiers.pii.training.words import Pools, pick


_ORIGINS = ("in", "in", "in", "ea", "af", "eu", "eu", "any", "any", "any", "any")
_PARTICLES = ("van der", "de la", "van", "von", "de", "al", "bin", "di", "le", "dos", "El", "Mc")
# How Hindi writes the initials A, B, C, D, …
_LETTERS = (
    "ए",
    "बी",
    "सी",
    "डी",
    "ई",
    "जी",
    "एच",
    "आई",
    "जे",
    "के",
    "एल",
    "एम",
    "एन",
    "पी",
    "आर",
    "एस",
    "टी",
    "वी",
)
_ASCII = str.maketrans(
    "äöüßéèêëáàâçñøåæłśżźćńęąíìóòôõúùšžčřěýİıŞşğ", "aousEeeeaaacnoaalszzcneaiiooooouszcreyIiSsg"
)


class People:
    """Draws names; `pools` has the written lists and the gazetteers `first` and `surname`."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def first(self, rng: random.Random, origin: str = "") -> str:
        origin = origin or pick(rng, _ORIGINS)
        if origin == "any":
            return pick(rng, self._pools["first"])
        return pick(rng, self._pools[f"{origin}_first"])

    def last(self, rng: random.Random, origin: str = "") -> str:
        origin = origin or pick(rng, _ORIGINS)
        if origin == "any":
            surname = pick(rng, self._pools["surname"])
            if rng.random() < 0.04:
                return f"{pick(rng, _PARTICLES)} {surname}"
            if rng.random() < 0.03:
                return f"{surname}-{pick(rng, self._pools['surname'])}"
            return surname
        return pick(rng, self._pools[f"{origin}_last"])

    def full(self, rng: random.Random, origin: str = "") -> str:
        """A name in one of the forms that texts have; seldom one word, seldom four."""
        origin = origin or pick(rng, _ORIGINS)
        first, last = self.first(rng, origin), self.last(rng, origin)
        roll = rng.random()
        if roll < 0.70:
            return f"{first} {last}"
        if roll < 0.80:
            return first
        if roll < 0.85:
            return f"{first} {self.first(rng, origin)} {last}"
        if roll < 0.89:
            return f"{first} {chr(65 + int(rng.random() * 26))}. {last}"
        if roll < 0.91:
            return f"{first[0]}. {last}"
        if roll < 0.93:
            return f"{first} {chr(65 + int(rng.random() * 26))} {last}"
        if roll < 0.95:
            return f"{first} {last} {self.last(rng, origin)}"
        if roll < 0.97:
            return last
        if roll < 0.98:
            return f"{last}, {first}"
        return f"{first} {last}".translate(_ASCII)

    def local(self, rng: random.Random) -> str:
        """A European name, from the written lists or the gazetteers."""
        return self.full(rng, "eu" if rng.random() < 0.45 else "any")

    def hindi(self, rng: random.Random) -> str:
        """A name from India, or of people abroad as Hindi writes it."""
        where = "hi_abroad" if rng.random() < 0.3 else "hi"
        first, last = (f"{where}_{part}" for part in ("first", "last"))
        roll = rng.random()
        if roll < 0.15:
            return pick(rng, self._pools[first])
        if roll < 0.35:
            return pick(rng, self._pools[last])
        name = pick(rng, self._pools[first])
        if roll < 0.4:
            name = "".join(pick(rng, _LETTERS) for _ in range(1 + int(rng.random() * 2)))
        middle = f" {pick(rng, self._pools[last])}" if roll > 0.94 else ""
        return f"{name}{middle} {pick(rng, self._pools[last])}"

    def username(self, rng: random.Random) -> str:
        first = self.first(rng).lower().translate(_ASCII).replace(" ", "")
        last = self.last(rng).lower().translate(_ASCII).replace(" ", "")
        words = self._pools
        mark = pick(rng, ("", "", ".", "_", "-"))
        number = str(int(rng.random() * 10 ** (1 + int(rng.random() * 4))))
        forms = (
            f"{first}{mark}{last}",
            f"{first[0]}{last}",
            f"{first}{mark}{last}{number}",
            f"{first}{number}",
            f"{first}{mark}{last[0]}",
            f"{last}{mark}{first[0]}{number}",
            f"{pick(rng, words['color'])}{mark}{pick(rng, words['animal'])}{number}",
            f"x{pick(rng, words['animal']).title()}{pick(rng, words['color']).title()}{number}",
            f"{first[:3]}{last[:4]}{number}",
        )
        return pick(rng, forms)
