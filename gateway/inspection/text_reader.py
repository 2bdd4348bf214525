"""Inspects a text, or recalls the result from when the same organisation last sent it.

A conversation repeats its history with every turn, and an agent its task with every tool result.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import inf
from operator import attrgetter
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from classifiers.across import Edges, edges_in, labels_across, verdict_of
from classifiers.complexity.ability import Ability, with_ability
from classifiers.complexity.model import Complexity, ComplexityModel
from classifiers.extraction import extract_parts
from classifiers.injection.model import InjectionModel
from classifiers.injection.model import load as load_injection
from classifiers.inspection import TOO_MANY_TORN, Seen, see, windows_of
from classifiers.parts import Part, newest_asking
from classifiers.pii.scanner import Scanner
from classifiers.units import SEAM, Unit
from classifiers.verdicts import CLEAN, Verdict, judge
from gateway.clock import Clock
from gateway.inspection.remembered import Remembered


TEXT_COSTS_LENGTH: Final = 128
"""A text takes a fixed time that is worth so many characters: two thousand one-word texts add
up."""
_NONCE: Final = bytes(12)
_EDGES: Final = attrgetter("edges")
_JSON: Final = msgspec.json.Encoder()
"""Different trees have different bytes, as long as all numbers in them are finite."""


@cache
def injection_model() -> InjectionModel:
    """Loaded on first use: most installations do not need it."""
    return load_injection()


def namer() -> Callable[[bytes], bytes]:
    """Gives texts names of 16 bytes by which they are recognised in this process.

    GMAC (NIST SP 800-38D) under a key that nobody knows, always with the same nonce: a universal
    hash, in which two texts of n blocks have the same name with a chance of n in 2**128, whoever
    chose them, as long as no name is ever shown to anybody. It takes a tenth of BLAKE2b's time.
    """
    return partial(AESGCM(AESGCM.generate_key(128)).encrypt, _NONCE, b"")


class TooMuchUnread(Exception):
    """A reading would have to read more than it is allowed to."""


class Reading:
    """One look at a request: for whom, until when, and how much unknown text may be read."""

    __slots__ = ("due_s", "left", "organisation")

    def __init__(self, organisation: str, due_s: float = inf, unread_max: float = inf) -> None:
        self.organisation = organisation
        self.due_s = due_s
        self.left = unread_max

    def spend(self, text: str) -> None:
        """Raises `TooMuchUnread` if this text is one too many, by its length or their number."""
        self.left -= len(text) + TEXT_COSTS_LENGTH
        if self.left < 0:
            raise TooMuchUnread


class TextReader:
    """Asks the classifiers about a text that an organisation has not sent lately."""

    def __init__(
        self,
        scanner: Scanner,
        scorer: ComplexityModel,
        ability: Ability | None,
        texts_kept: int,
        clock: Clock,
    ) -> None:
        self._scanner = scanner
        self._scorer = scorer
        self._ability = ability
        self._clock = clock
        self._name = namer()
        self._parts: Remembered[Seen] = Remembered(texts_kept)
        self._questions: Remembered[Complexity] = Remembered(texts_kept)
        self._verdicts: Remembered[Verdict] = Remembered(texts_kept)
        self._across: Remembered[tuple[str, ...]] = Remembered(texts_kept)
        self._scores: Remembered[Complexity] = Remembered(texts_kept)
        self._injections: Remembered[float] = Remembered(texts_kept)

    def names(self, parts: Sequence[Part]) -> list[bytes]:
        """The names of parts; raises UnicodeEncodeError if a text in them is not valid UTF-8."""
        return [*map(self._name, map(_JSON.encode, parts))]

    def seen(self, reading: Reading, parts: Sequence[Part], names: Sequence[bytes]) -> list[Seen]:
        """What each part of a request holds, in their order.

        A part is recognised by its name and that of the part before it: an announcement at the end
        of one may turn the beginning of the next into an identifier.

        Raises:
            TooMuchUnread: more of it is unknown than this reading may read.
            TimeoutError: nobody waits for the rest.
        """
        found: list[Seen] = []
        before: Part | None = None
        tail = b""
        for part, name in zip(parts, names, strict=True):
            key = name + tail
            seen = self._parts.get(reading.organisation, key)
            if seen is None:
                seen = see(part, before, partial(self.verdict, reading))
                if not seen.verdict.reasons:
                    self._parts.keep(reading.organisation, key, seen)
            if seen.length:
                before, tail = part, name
            found.append(seen)
        return found

    def across(
        self, reading: Reading, parts: Sequence[Part], names: Sequence[bytes], seen: Sequence[Seen]
    ) -> Verdict:
        """What several messages hold together, and none of them alone.

        Raises:
            TooMuchUnread: more has to be tried than this reading may read.
            TimeoutError: nobody waits for the rest.
        """
        if [*map(_EDGES, seen)].count(None) >= len(seen) - 1:
            return CLEAN
        said: list[int] = []
        edges: list[tuple[int, Edges]] = []
        for at, each in enumerate(seen):
            if each.edges is not None:
                edges.append((len(said), each.edges))
            if each.length:
                said.append(at)
        windows = windows_of(edges)
        if windows is None:
            return TOO_MANY_TORN
        labels: list[str] = []
        for window in windows:
            places = [said[rank] for rank in window.places]
            name = self._name(b"".join([names[at] for at in places]))
            found = self._across.get(reading.organisation, name)
            if found is None:
                self._go_on(reading)
                texts = [edges_in(extract_parts((parts[at],)).said()) for at in places]
                reading.spend("".join(texts))
                found = labels_across(texts)
                self._across.keep(reading.organisation, name, found)
            labels += found
        return verdict_of(labels)

    def question(
        self, reading: Reading, parts: Sequence[Part], names: Sequence[bytes]
    ) -> Complexity:
        """How hard it is to answer the question in the newest part that has one."""
        at = newest_asking(parts)
        if at < 0:
            return self.complexity(reading, "")
        score = self._questions.get(reading.organisation, names[at])
        if score is None:
            score = self.complexity(reading, extract_parts((parts[at],)).newest_user_text())
            self._questions.keep(reading.organisation, names[at], score)
        return score

    def verdict(self, reading: Reading, unit: Unit) -> Verdict:
        """What sensitive data a unit holds.

        Raises:
            TimeoutError: nobody waits for what is not known of it.
        """
        # With the lead's length: where it ends says what counts, and any text may hold a seam.
        places = unit.chains or ""
        name = self._named(f"{len(unit.lead)}{places}{SEAM}{unit.lead}{unit.text}")
        verdict = self._verdicts.get(reading.organisation, name)
        if verdict is None:
            self._go_on(reading)
            reading.spend(unit.text)
            verdict = judge(unit, self._scanner, lambda: self._is_over(reading))
            if not verdict.reasons:
                # What could not be finished this time may be finished next time.
                self._verdicts.keep(reading.organisation, name, verdict)
        return verdict

    def complexity(self, reading: Reading, text: str) -> Complexity:
        """How hard a text is to answer."""
        name = self._named(text)
        score = self._scores.get(reading.organisation, name)
        if score is None:
            reading.spend(text)
            score = self._scorer.assess(text)
            if self._ability is not None:
                score = with_ability(score, self._ability)
            self._scores.keep(reading.organisation, name, score)
        return score

    def injection(self, reading: Reading, text: str) -> float:
        """The probability, 0 to 1, that an untrusted text gives orders."""
        name = self._named(text)
        score = self._injections.get(reading.organisation, name)
        if score is None:
            reading.spend(text)
            score = injection_model().score(text)
            self._injections.keep(reading.organisation, name, score)
        return score

    def _is_over(self, reading: Reading) -> bool:
        return self._clock.monotonic_s() >= reading.due_s

    def _go_on(self, reading: Reading) -> None:
        """Check the deadline between texts: patterns do not, and there may be thousands."""
        if self._is_over(reading):
            raise TimeoutError

    def _named(self, text: str) -> bytes:
        return self._name(text.encode("utf-8", "surrogatepass"))
