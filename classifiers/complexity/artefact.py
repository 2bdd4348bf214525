"""The artefact that training stores and the service loads, checked against its digest.

One msgpack file of numbers and words, nothing executable, and beside it the sha256 of that file.
"""

import hashlib
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from classifiers.complexity.features import SHAPE_NAMES


DIRECTORY = Path(__file__).parent / "artefact"
MODEL_FILE = "model.msgpack"
DIGEST_FILE = "model.sha256"
CARD_FILE = "MODEL_CARD.md"
HEADS = ("gain", "weak_fails", "strong_fails")
"""Linear heads, followed by one head per domain; together they are the lanes of a term."""

LANE_ZERO = 128
"""A lane's weight is stored as one byte; this byte means zero."""
KEY_BYTES = 4


key_of: Final = crc32
"""The hash of a word, or of a pair joined by a blank.

One in a hundred thousand unknown words has the hash of a known one, which adds a little noise.
"""


class ArtefactError(Exception):
    """The artefact is not the one that its digest names, or does not fit this code."""


class Logistic(msgspec.Struct, frozen=True):
    """Calibration: 1 / (1 + exp(-(slope * raw + offset)))."""

    slope: float
    offset: float


class Tier(msgspec.Struct, frozen=True):
    """A name for all scores from `least` on, up to the next tier."""

    name: str
    least: float


class Expert(msgspec.Struct, frozen=True):
    """One output of the stack.

    `heads`: a weight per entry of HEADS. `offset`, `shape`: per domain, a constant and a weight per
    measure of shape; a prompt gets the mixture of its likeliest domains.
    """

    heads: tuple[float, ...]
    offset: tuple[float, ...]
    shape: tuple[tuple[float, ...], ...]
    calibration: Logistic


class Gate(msgspec.Struct, frozen=True):
    """Judges answers that calculate: log-odds that the answer is wrong, linear in its measures."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    weights: tuple[float, ...]
    offset: float


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The artefact as stored.

    `keys`: hashes of the known words and pairs ("a b"), 32 bits each, little-endian, ascending.
    `lanes`: one byte per key and head, LANE_ZERO is zero, in steps of `lane_unit`. Both are used
    where the file was read into memory: nothing is built from them.
    """

    shape_names: tuple[str, ...]
    domains: tuple[str, ...]
    keys: memoryview
    lanes: memoryview
    lane_unit: tuple[float, ...]
    lane_offset: tuple[float, ...]
    # Bounds seen in training: outside of them a shape measure counts as the bound.
    shape_low: tuple[float, ...]
    shape_high: tuple[float, ...]
    shape_mean: tuple[float, ...]
    sharpness: float
    strong_needed: Expert
    weak_suffices: Expert
    strong_suffices: Expert
    gate: Gate
    tiers: tuple[Tier, ...]
    # The share of unknown words that few training prompts reach.
    novelty_high: float
    data: dict[str, str]

    def __repr__(self) -> str:
        return f"Weights({len(self.keys) // KEY_BYTES} terms, tiers={self.tiers})"


def encode(weights: Weights) -> bytes:
    return msgspec.msgpack.encode(weights)


def version(raw: bytes) -> str:
    return f"complexity-{hashlib.sha256(raw).hexdigest()[:12]}"


def store(raw: bytes, directory: Path) -> None:
    """Write the artefact and its digest."""
    (directory / MODEL_FILE).write_bytes(raw)
    (directory / DIGEST_FILE).write_text(hashlib.sha256(raw).hexdigest() + "\n")


def read(directory: Path = DIRECTORY) -> tuple[Weights, str]:
    """Read and check the artefact; returns it with its version.

    Raises:
        ArtefactError
    """
    raw = (directory / MODEL_FILE).read_bytes()
    if hashlib.sha256(raw).hexdigest() != (directory / DIGEST_FILE).read_text().strip():
        raise ArtefactError("the artefact does not have the digest that was recorded for it")
    try:
        weights = msgspec.msgpack.decode(raw, type=Weights)
    except msgspec.MsgspecError as error:
        raise ArtefactError("the artefact is not readable") from error
    lanes = len(HEADS) + len(weights.domains)
    terms = len(weights.keys) // KEY_BYTES
    if weights.shape_names != SHAPE_NAMES or not weights.tiers or not weights.domains:
        raise ArtefactError("the artefact was trained for other features")
    if (len(weights.lanes), len(weights.keys)) != (lanes * terms, terms * KEY_BYTES) or (
        not terms or len(weights.lane_unit) != lanes
    ):
        raise ArtefactError("the artefact's terms and weights do not belong together")
    return weights, version(raw)
