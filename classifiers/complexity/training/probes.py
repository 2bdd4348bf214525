"""Requests with the tier that a person expects, in seven languages: never trained on."""

from pathlib import Path
from typing import Final

from msgspec import Struct


FILE: Final = Path(__file__).parent / "probes.txt"
CODE = "\n\n" + "\n".join(
    f"class Store{number}:\n"
    f"    def __init__(self, tmp, rows):\n        self.tmp = tmp\n"
    f"        self.rows = list(rows)\n\n"
    f"    def put(self, row):\n        with self.lock:\n            self.rows.append(row)\n"
    f"        return len(self.rows) + {number}\n"
    for number in range(8)
)
"""Used as pasted code."""
DOCUMENT = (
    "\n\nInvoice 4711 of 3 March 2024. Dear Ms Berger, thank you for your order of 12 lamps. The "
    "parcel left our store in Hamburg on Monday and should reach you in Lyon by Friday. The total "
    "of 348.50 euros is due within 14 days. If anything is missing, write to help@lamps.example "
    "or ask for Mr Novak. Our office in Madrid is closed next week. Kind regards, Anna Keller"
)
"""Used as a pasted letter."""


class Probe(Struct, frozen=True):
    """A request of one kind, and the tier that a person expects for it."""

    kind: str
    tier: str
    half: str
    language: str
    request: str


def read_probes(file: Path = FILE) -> tuple[Probe, ...]:
    """All probes, in the order of the file."""
    found: list[Probe] = []
    kind = tier = half = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        first, _, rest = line.partition(" ")
        if first == "==":
            kind, tier, half = rest.split()
        elif first and first not in ("#", "why:"):
            request = rest.replace("/n", "\n").replace("{code}", CODE)
            request = request.replace("{document}", DOCUMENT)
            found.append(Probe(kind, tier, half, first, request))
    return tuple(found)
