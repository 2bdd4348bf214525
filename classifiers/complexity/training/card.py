"""The model card beside an artefact: people write what was measured, training adds the rest."""

from pathlib import Path

import msgspec

from classifiers.complexity.artefact import CARD_FILE, KEY_BYTES, Weights, version


BEGIN = "<!-- derived by training -->"
END = "<!-- end of what training derives -->"


def write_card(raw: bytes, splits: str, prompts: int, directory: Path) -> None:
    """Put version, data and sizes into the card; the sentences around them stay as they are."""
    weights = msgspec.msgpack.decode(raw, type=Weights)
    path = directory / CARD_FILE
    text = path.read_text() if path.exists() else f"# Complexity score\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    terms = len(weights.keys) // KEY_BYTES
    tiers = ", ".join(f"`{tier.name}` from {tier.least}" for tier in weights.tiers)
    size = (
        f"Version `{version(raw)}`, {len(raw):,} bytes: {terms:,} words and pairs, "
        f"{len(weights.domains)} domains, {len(weights.shape_names)} measures of shape."
    )
    origin = (
        f"Trained on {prompts:,} prompts (splits: {splits}). Tiers: {tiers}. A prompt with more "
        f"than {weights.novelty_high:.1%} unknown words counts as unfamiliar."
    )
    table = ["| packed file | sha256 |", "|---|---|"]
    table += [f"| {name} | `{digest}` |" for name, digest in weights.data.items()]
    lines = [BEGIN, size, origin, "", *table, END]
    path.write_text(before + "\n".join(lines) + after)
