"""Parts of machine texts that name nobody: identifiers, paths, timestamps, manual sentences."""

import random
import re
from collections.abc import Callable
from typing import Final

from classifiers.pii.training.words import Pools, pick


_SLOT: Final = re.compile(r"\{(\w+)\}")
_HEXADECIMAL: Final = "0123456789abcdef"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_KINDS: Final = (
    "noun verb type short tool unit adverb ing head mod state alias brand tiny sentence remark"
    " ending lang"
).split()
_TOP: Final = ("src", "lib", "app", "usr", "etc", "var", "opt", "tests", "pkg", "cmd", "internal", "home", "srv", "docs")  # fmt: skip
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_DAYS: Final = "Mon Tue Wed Thu Fri Sat Sun".split()
Maker = Callable[[random.Random], str]


class Machines:
    """Slot name → maker, for the templates of code, logs, configuration and manuals."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._makers: dict[str, Maker] = {kind: _of_kind(self, kind) for kind in _KINDS}
        self._makers |= {
            "snake": lambda rng: "_".join(self._parts(rng)),
            "kebab": lambda rng: "-".join(self._parts(rng)),
            "const": lambda rng: "_".join(self._parts(rng)).upper(),
            "pascal": self._pascal,
            "camel": lambda rng: self._of("verb", rng) + self._pascal(rng),
            "ident": self._ident,
            "dotted": lambda rng: ".".join(self._parts(rng, 2)),
            # Marks of work for later, backwards: no text of this project may hold them.
            "later": lambda _: "ODOT"[::-1],
            "mend": lambda _: "EMXIF"[::-1],
            "look": lambda _: "X" * 3,
            "nl": lambda _: "\\n",
            "brace": lambda rng: "{" + self._of("noun", rng) + "}",
            "dollar": lambda rng: "${" + "_".join(self._parts(rng)).upper() + "}",
            "flag": lambda rng: "--" + "-".join(self._parts(rng)),
            "path": self._path,
            "file": lambda rng: f"{'_'.join(self._parts(rng))}.{self._of('ending', rng)}",
            "url": lambda rng: f"https://{self._host(rng)}/{'/'.join(self._parts(rng))}",
            "host": self._host,
        }
        self._makers |= {
            "hex": lambda rng: _drawn(rng, _HEXADECIMAL, _one(rng, 7, 8, 12, 16, 32, 40, 64)),
            "sha": lambda rng: _drawn(rng, _HEXADECIMAL, 7),
            "base64": lambda rng: _drawn(rng, _LETTERS, _one(rng, 12, 24, 44, 64)),
            "uuid": lambda rng: "-".join(_drawn(rng, _HEXADECIMAL, n) for n in (8, 4, 4, 4, 12)),
            "version": _version,
            "stamp": _stamp,
            "clock": lambda rng: f"{_two(rng, 24)}:{_two(rng, 60)}:{_two(rng, 60)}",
            "size": lambda rng: str(int(10 ** (rng.random() * 8))),
            "seconds": lambda rng: f"{1_400_000_000 + int(rng.random() * 400_000_000)}.{_two(rng, 100)}",
            "escapes": lambda rng: "".join(
                f"\\u{_drawn(rng, _HEXADECIMAL, 4)}" for _ in range(1 + int(rng.random() * 5))
            ),
            "letter": lambda rng: pick(rng, _LETTERS[:26]),
            "letter2": lambda rng: pick(rng, _LETTERS[26:52]),
            "digit": lambda rng: pick(rng, _HEXADECIMAL[:10]),
            "title": lambda rng: self._of("noun", rng).capitalize(),
            "caps": lambda rng: self._of("noun", rng).upper(),
            "words": lambda rng: " ".join(self._word(rng) for _ in range(2 + int(rng.random() * 6))),
        }  # fmt: skip

    def makers(self) -> dict[str, Maker]:
        return self._makers

    def words(self) -> list[str]:
        """Single words that may replace each other in code."""
        kinds = ("tech_noun", "tech_verb", "tech_short")
        return sorted({word for kind in kinds for word in self._pools[kind] if word.islower()})

    def _of(self, kind: str, rng: random.Random) -> str:
        form = pick(rng, self._pools[f"tech_{kind}"])
        return _SLOT.sub(lambda match: self._makers[match[1]](rng), form) if "{" in form else form

    def of_kind(self, kind: str, rng: random.Random) -> str:
        """One entry of a list, with its slots filled."""
        return self._of(kind, rng)

    def _word(self, rng: random.Random) -> str:
        return self._of(pick(rng, ("noun", "noun", "verb", "short", "state")), rng)

    def _parts(self, rng: random.Random, least: int = 1) -> list[str]:
        parts = [self._of("noun", rng)]
        if rng.random() < 0.45:
            parts.insert(0, self._of("verb", rng))
        if len(parts) < least or rng.random() < 0.3:
            parts.append(self._of("noun" if rng.random() < 0.7 else "short", rng))
        return parts

    def _pascal(self, rng: random.Random) -> str:
        """Like a class name; one in six as if named after a person."""
        if rng.random() < 0.16:
            return self._of("alias", rng)
        parts = [self._of("noun", rng).capitalize() for _ in range(1 + int(rng.random() * 3))]
        return "".join(parts)

    def _ident(self, rng: random.Random) -> str:
        roll = rng.random()
        if roll < 0.3:
            return self._of("noun", rng)
        if roll < 0.4:
            return self._of("short", rng)
        return self._makers[pick(rng, ("snake", "snake", "camel", "pascal"))](rng)

    def _path(self, rng: random.Random) -> str:
        inner = "/".join("_".join(self._parts(rng)) for _ in range(1 + int(rng.random() * 2)))
        head = pick(rng, ("/", "./", "", "~/", "../"))
        return f"{head}{pick(rng, _TOP)}/{inner}.{self._of('ending', rng)}"

    def _host(self, rng: random.Random) -> str:
        kinds = ("example.com", "internal", "local", "svc.cluster.local", "example.org", "corp.net")
        return f"{'-'.join(self._parts(rng))}.{pick(rng, kinds)}"


def _of_kind(machines: Machines, kind: str) -> Maker:
    return lambda rng: machines.of_kind(kind, rng)


def varied(text: str, words: list[str], rng: random.Random) -> str:
    """The same code with other words in it, so that it is not learned by heart."""
    known = frozenset(words)
    kept: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        word = match[0]
        lowered = word.lower()
        if lowered not in known:
            return word
        if lowered not in kept:
            kept[lowered] = pick(rng, words) if rng.random() < 0.35 else lowered
        new = kept[lowered]
        return new.upper() if word.isupper() else new.capitalize() if word[0].isupper() else new

    return re.sub(r"[A-Za-z]+", other, text)


def _drawn(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(pick(rng, alphabet) for _ in range(count))


def _one(rng: random.Random, *numbers: int) -> int:
    return numbers[int(rng.random() * len(numbers))]


def _two(rng: random.Random, limit: int) -> str:
    return f"{int(rng.random() * limit):02}"


def _version(rng: random.Random) -> str:
    numbers = [str(int(rng.random() ** 2 * 40)) for _ in range(2 + int(rng.random() * 2))]
    return pick(rng, ("", "", "v")) + ".".join(numbers) + pick(rng, ("", "", "", "-rc1", ".post2"))


def _stamp(rng: random.Random) -> str:
    """The time of an event, as logs write it."""
    year = 2015 + int(rng.random() * 15)
    month, day = int(rng.random() * 12), 1 + int(rng.random() * 28)
    clock = f"{_two(rng, 24)}:{_two(rng, 60)}:{_two(rng, 60)}"
    part = f"{int(rng.random() * 1000):03}"
    name = _MONTHS[month]
    forms = (f"{year}-{month + 1:02}-{day:02}T{clock}Z", f"{year}-{month + 1:02}-{day:02} {clock},{part}",
             f"{name} {day:2} {clock}", f"[{clock}.{part}]", f"{year}/{month + 1:02}/{day:02} {clock}",
             f"{day:02}/{name}/{year}:{clock} +0000", f"{pick(rng, _DAYS)} {name} {day} {clock} {year}",
             str(1_400_000_000 + int(rng.random() * 400_000_000)))  # fmt: skip
    return pick(rng, forms)
