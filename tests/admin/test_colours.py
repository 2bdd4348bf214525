"""The palette, by its figures: what is to be read, or found, stands out from what it stands on."""

import re
from pathlib import Path


TOKENS = Path(__file__).resolve().parents[2] / "admin" / "static" / "styles" / "tokens.css"
INKS = ("ink", "ink-soft", "accent", "in-house", "managed", "refused", "warn", "good")


def _luminance(colour: str) -> float:
    """Relative, by WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_words_and_what_bounds_a_field_stand_out_from_every_ground() -> None:
    """A field that stands on the paper, such as a filter, was bounded by 2.86 : 1."""
    text = TOKENS.read_text()
    themes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r"\{([^{}]*--paper:[^{}]*)\}", text)
    ]
    assert len(themes) == 3, "light, dark by the system, dark by choice"
    assert themes[1] == themes[2]
    for theme in themes:
        for ground in ("paper", "card", "sunk"):
            bound = _contrast(theme["line-strong"], theme[ground])
            assert bound >= 3, (ground, bound)
            for ink in INKS:
                assert _contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)
        for kind in ("in-house", "managed", "refused", "warn", "accent"):
            assert _contrast(theme[kind], theme[f"{kind}-wash"]) >= 4.5, kind
        assert _contrast(theme["accent-ink"], theme["accent"]) >= 4.5
