"""The tagger's training corpus: permissive shared files and generated text, varied in many ways."""

import gzip
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from classifiers.pii.training.fill import Filler, Sample, Span
from classifiers.pii.training.machines import Machines, varied
from classifiers.pii.training.people import People
from classifiers.pii.training.words import (
    Pools,
    load_code,
    load_gazetteer,
    load_templates,
    load_words,
    pick,
)


# The files whose licences allow shipping a model trained on them (README of the data).
PERMISSIVE = frozenset(
    "presidio-research gateway-synth-a gitleaks-sampled wnut17 hiner nannigalaxy neg-frr "
    "neg-humaneval-a".split()
)
TAGS = (
    "PERSON", "ADDRESS", "USERNAME", "LOCATION", "ORGANIZATION", "PHONE", "PASSWORD", "DOB",
    "EMPLOYEE_ID", "MRN", "PASSPORT", "DRIVER_LICENSE", "BANK_ACCOUNT", "NATIONAL_ID", "VEHICLE_REG",
)  # fmt: skip
_ASCII_END = 0x250


class Document(NamedTuple):
    """One line of the shared files."""

    id: str
    text: str
    spans: list[Span]
    source: str
    lang: str
    pii: bool | None
    tags: tuple[str, ...]


class _RawSpan(msgspec.Struct, frozen=True):
    start: int
    end: int
    label: str


class _RawDocument(msgspec.Struct, frozen=True):
    id: str
    text: str
    spans: list[_RawSpan]
    source: str
    lang: str
    pii: bool | None = None
    tags: tuple[str, ...] = ()


def read_documents(file: Path) -> list[Document]:
    """The lines of a `.jsonl` or `.jsonl.gz` file."""
    raw = file.read_bytes()
    data = gzip.decompress(raw) if file.suffix == ".gz" else raw
    decoder = msgspec.json.Decoder(_RawDocument)
    documents = []
    for line in data.splitlines():
        if not line.strip():
            continue
        item = decoder.decode(line)
        spans = sorted(Span(s.start, s.end, s.label) for s in item.spans)
        documents.append(
            Document(item.id, item.text, spans, item.source, item.lang, item.pii, item.tags)
        )
    return documents


def permissive_samples(documents: Iterable[Document]) -> dict[str, list[Sample]]:
    """Samples by source, without the sources that only allow measuring."""
    samples: dict[str, list[Sample]] = {}
    for document in documents:
        if document.source in PERMISSIVE:
            spans = tuple(span for span in document.spans if span.label in TAGS)
            samples.setdefault(document.source, []).append(Sample(document.text, spans))
    return samples


def pools_of(shared: dict[str, list[Sample]], directory: Path) -> Pools:
    """The written word lists, the gazetteers, and places and companies of the shared files."""
    pools = load_words()
    pools["first"] = load_gazetteer(directory / "gazetteer_first.txt")
    pools["surname"] = load_gazetteer(directory / "gazetteer_surname.txt")
    for name, label in (("place", "LOCATION"), ("company", "ORGANIZATION")):
        pools[name] = sorted(
            {
                sample.text[span.start : span.end]
                for sample in shared["presidio-research"]
                for span in sample.spans
                if span.label == label and span.end - span.start > 3
            }
        )
    return pools


class Corpus:
    """Draws the samples of one epoch."""

    def __init__(self, shared: dict[str, list[Sample]], pools: Pools) -> None:
        self._shared = shared
        self._people = People(pools)
        self._fill = Filler(pools)
        self._templates = load_templates()
        self._code = load_code()
        self._words = Machines(pools).words()

    def epoch(self, rng: random.Random, per_template: int, repeats: dict[str, int]) -> list[Sample]:
        """Fresh fillings of every template, and the shared samples with other names."""
        samples = list(self.generated(rng, per_template))
        for source, originals in self._shared.items():
            for turn in range(repeats.get(source, 1)):
                for sample in originals:
                    renamed = self._renamed(sample, rng) if turn or rng.random() < 0.4 else sample
                    samples.append(renamed)
        samples = [self._recased(sample, rng) for sample in samples]
        samples += [
            join(rng.choices(samples, k=2 + int(rng.random() * 3)), rng)
            for _ in range(len(samples) // 8)
        ]
        rng.shuffle(samples)
        return samples

    def generated(self, rng: random.Random, per_template: int) -> Iterator[Sample]:
        for template in self._templates:
            for _ in range(per_template):
                yield self._fill(template, rng)
        for text in self._code:
            for _ in range(max(1, per_template // 4)):
                yield Sample(varied(text, self._words, rng), ())

    def _renamed(self, sample: Sample, rng: random.Random) -> Sample:
        """The same text about other people, so that no name is learned by heart."""
        parts: list[str] = []
        spans: list[Span] = []
        at = reached = 0
        for span in sample.spans:
            if span.start < reached:
                continue
            value = sample.text[span.start : span.end]
            if span.label == "PERSON" and rng.random() < 0.75:
                value = self._other_name(value, rng)
            parts += [sample.text[reached : span.start], value]
            at += span.start - reached
            spans.append(Span(at, at + len(value), span.label))
            at += len(value)
            reached = span.end
        parts.append(sample.text[reached:])
        return Sample("".join(parts), tuple(spans))

    def _other_name(self, value: str, rng: random.Random) -> str:
        if value[:1].isalpha() and ord(value[0]) >= _ASCII_END:
            return self._people.hindi(rng) if "\u0900" <= value[0] < "\u0980" else value
        words = value.split()
        if len(words) == 1:
            name = self._people.first(rng) if rng.random() < 0.6 else self._people.last(rng)
        elif len(words) == 2:
            name = f"{self._people.first(rng)} {self._people.last(rng)}"
        else:
            return value
        return name.lower() if value.islower() else name.upper() if value.isupper() else name

    @staticmethod
    def _recased(sample: Sample, rng: random.Random) -> Sample:
        roll = rng.random()
        if roll < 0.09:
            changed = sample.text.lower()
        elif roll < 0.11:
            changed = sample.text.upper()
        else:
            return sample
        return Sample(changed, sample.spans) if len(changed) == len(sample.text) else sample


def join(samples: list[Sample], rng: random.Random) -> Sample:
    """Several texts as one."""
    mark = pick(rng, ("\n\n", "\n", " ", "\n---\n", "\x1f"))
    text = ""
    spans: list[Span] = []
    for sample in samples:
        at = len(text)
        spans += [Span(at + s.start, at + s.end, s.label) for s in sample.spans]
        text += sample.text + mark
    return Sample(text, tuple(spans))
