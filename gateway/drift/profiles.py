"""Profiles of prompts and answers: counts in a few bins, never content. Pure.

Everything comes from records that are written anyway. A profile of an hour can be added to others,
and says nothing about a single request.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct, field

from gateway.types import FORMATS, AuditRecord


Kind = Literal["prompts", "answers"]
BINS_MAX: Final = 24
"""For one feature of words, such as labels of findings; later words are counted as `other`."""
NAME_CHARS: Final = 60
OTHER: Final = "other"
NOTHING: Final = "nothing"
_PERCENT: Final = 100
_PPM: Final = 1_000_000
_UNMET: Final = "response_format.unmet"
_COUNTS: Final = ("/count_tokens", "/input_tokens")
_SHAPES: Final = ("has_tools", "has_images", "has_documents")


class Feature(Struct, frozen=True):
    """One observed property; with `edges` its bins are in order, without them they are words.

    Bin `i` of an ordered feature holds values up to and including `edges[i]`, the last one all
    above.
    """

    name: str
    title: str
    subject: str
    """The beginning of a sentence about a bin."""
    edges: tuple[int, ...] = ()
    unit: str = ""


_HUNDREDTHS: Final = (10, 20, 30, 40, 50, 60, 70, 80, 90)
FEATURES: Final[Mapping[Kind, tuple[Feature, ...]]] = {
    "prompts": (
        Feature(
            *("tokens", "Length", "prompts"),
            (100, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 64_000),
            "tokens",
        ),
        Feature("complexity", "Complexity", "prompts of complexity", _HUNDREDTHS, "of 100"),
        Feature("domain", "Domain", "prompts about"),
        Feature("class", "Data class", "prompts of class"),
        Feature("findings", "Findings", "found in prompts,"),
        Feature("shape", "Tools and attachments", "prompts with"),
        Feature("dialect", "Dialect", "prompts in"),
        Feature("familiar", "Familiar to the classifier", "prompts that are"),
        Feature(
            *("injection", "Injection score", "untrusted texts of score"),
            (25, 50, 75, 90),
            "of 100",
        ),
    ),
    "answers": (
        Feature("ending", "Ending", "requests that end"),
        Feature(
            *("tokens", "Length", "answers"),
            (10, 50, 100, 250, 500, 1_000, 2_000, 4_000, 8_000),
            "tokens",
        ),
        Feature("stop", "Refused or cut", "answers that stop by"),
        Feature("format", "Format asked for", "answers whose format is"),
        Feature("findings", "Findings in answers", "found in answers,"),
    ),
}


class Profile(Struct):
    """Counts of some requests; complete profiles are not changed any more."""

    count: int = 0
    bins: dict[str, dict[str, int]] = field(default_factory=dict)
    """Feature → bin → count."""

    def mark(self, feature: str, name: str) -> None:
        """Count one; a feature has a limited number of bins."""
        found = self.bins.setdefault(feature, {})
        name = name[:NAME_CHARS]
        if name not in found and len(found) >= BINS_MAX:
            name = OTHER
        found[name] = found.get(name, 0) + 1

    def add(self, other: "Profile") -> None:
        self.count += other.count
        for feature, bins in other.bins.items():
            mine = self.bins.setdefault(feature, {})
            for name, number in bins.items():
                mine[name] = mine.get(name, 0) + number


def added(profiles: Iterable[Profile]) -> Profile:
    """The sum of all of them."""
    whole = Profile()
    for each in profiles:
        whole.add(each)
    return whole


def profiled(records: Iterable[AuditRecord]) -> dict[tuple[Kind, str], Profile]:
    """What these records show: prompts by requested model, answers by target."""
    found: dict[tuple[Kind, str], Profile] = {}
    for record in records:
        if record.endpoint.endswith(_COUNTS):
            continue
        if record.stage == "intent":
            _count_prompt(found.setdefault(("prompts", record.model_requested), Profile()), record)
        elif record.stage == "outcome" and (target := _answering(record)):
            _count_answer(found.setdefault(("answers", target), Profile()), record)
    return found


def _count_prompt(profile: Profile, record: AuditRecord) -> None:
    profile.count += 1
    facts = record.facts
    is_read = record.inspection_complete
    profile.mark("class", record.data_class if is_read else "unread")
    profile.mark("dialect", record.dialect)
    for label in record.findings or (NOTHING,):
        profile.mark("findings", label)
    complexity = record.complexity_ppm * _PERCENT // _PPM
    profile.mark("complexity", _bin_of("prompts", "complexity", complexity))
    if record.calibration:
        is_new = record.calibration == "unfamiliar"
        profile.mark("familiar", "unfamiliar" if is_new else "familiar")
    parts = {name: abs(ppm) for name, ppm in record.complexity_parts_ppm.items() if ":" in name}
    if parts:
        profile.mark("domain", max(sorted(parts), key=lambda name: parts[name]).partition(":")[2])
    if facts is None:
        return
    profile.mark("tokens", _bin_of("prompts", "tokens", facts.input_tokens_estimate))
    held = [name.removeprefix("has_") for name in _SHAPES if getattr(facts, name)]
    profile.mark("shape", " and ".join(held) or "text alone")
    if facts.injection > 0:
        score = round(facts.injection * _PERCENT)
        profile.mark("injection", _bin_of("prompts", "injection", score))


def _answering(record: AuditRecord) -> str:
    """The target that answered or failed; empty if none was asked, or the caller did not wait."""
    detail = record.detail
    if record.status == "cancelled" or "counted" in detail or "cache_saved_microusd" in detail:
        return ""
    if record.target:
        return record.target
    return record.attempts[-1].target if record.attempts else ""


def _count_answer(profile: Profile, record: AuditRecord) -> None:
    profile.count += 1
    profile.mark("ending", "well" if record.status == "ok" else record.error or record.status)
    if record.status != "ok":
        return
    if record.usage is not None:
        profile.mark("tokens", _bin_of("answers", "tokens", record.usage.output_tokens))
    profile.mark("stop", record.detail.get("stop_reason", "themselves"))
    if any(name.startswith(FORMATS) for name in record.dropped):
        profile.mark("format", "missed" if _UNMET in record.dropped else "kept")
    for label in record.output_findings or (NOTHING,):
        profile.mark("findings", label)


_EDGES: Final = {
    (kind, each.name): each.edges for kind, features in FEATURES.items() for each in features
}


def _bin_of(kind: Kind, feature: str, value: int) -> str:
    return str(bisect_left(_EDGES[kind, feature], value))


def bins_of(feature: Feature, *profiles: Profile) -> list[str]:
    """Names of all bins in order: by edges, or for words by frequency."""
    if feature.edges:
        return [str(number) for number in range(len(feature.edges) + 1)]
    whole = added(profiles).bins.get(feature.name, {})
    return sorted(whole, key=lambda name: (-whole[name], name))


def words_of(feature: Feature, name: str) -> str:
    """A bin in words."""
    if not feature.edges or not name.isdecimal():
        return name
    number, edges, unit = int(name), feature.edges, feature.unit
    if number >= len(edges):
        return f"over {edges[-1]:,} {unit}"
    if number == 0:
        return f"up to {edges[0]:,} {unit}"
    return f"{edges[number - 1]:,} to {edges[number]:,} {unit}"
