"""Writes the model's results on the probes into its card: `python -m …training.figures`."""

from collections.abc import Sequence
from pathlib import Path

from classifiers.complexity.artefact import CARD_FILE, DIRECTORY
from classifiers.complexity.model import ComplexityModel, load
from classifiers.complexity.training.probes import Probe, read_probes


BEGIN = "<!-- measured on the probes -->"
END = "<!-- end of what the probes say -->"
_TIERS = ("light", "standard", "demanding")


def of_half(probes: Sequence[Probe], half: str) -> list[Probe]:
    return [probe for probe in probes if probe.half == half]


def table(model: ComplexityModel, probes: Sequence[Probe]) -> str:
    """Per expected tier and language, for either half: how many have their tier, how many not."""
    lines = ["| probes | n | in their tier | a lower one | a higher one |", "|---|---|---|---|---|"]
    for half in ("development", "heldout"):
        chosen = of_half(probes, half)
        lines.append(_line(half, model, chosen))
        lines += [
            _line(f"{half}, {tier}", model, [p for p in chosen if p.tier == tier])
            for tier in _TIERS
        ]
        lines += [
            _line(f"{half}, {language}", model, [p for p in chosen if p.language == language])
            for language in sorted({probe.language for probe in chosen})
        ]
    return "\n".join(lines)


def _line(name: str, model: ComplexityModel, probes: Sequence[Probe]) -> str:
    off = [
        _TIERS.index(model.assess(probe.request).tier) - _TIERS.index(probe.tier)
        for probe in probes
    ]
    counts = (off.count(0), sum(step < 0 for step in off), sum(step > 0 for step in off))
    return f"| {name} | {len(off)} | {counts[0]} | {counts[1]} | {counts[2]} |"


def write_figures(directory: Path = DIRECTORY) -> None:
    """Put the table into the card of the artefact in a folder."""
    path = directory / CARD_FILE
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{table(load(directory), read_probes())}\n{END}{after}")


if __name__ == "__main__":
    write_figures()
