"""Generates the small text tasks: repeating, counting, changing case, reversing, adding."""

import random
from collections.abc import Callable
from dataclasses import dataclass


_FOREIGN = (
    "Grüße aus Köln",
    "café",
    "naïve",
    "São Paulo",
    "Señor Muñoz",
    "Łódź",
    "Příliš žluťoučký",
    "日本語",
    "東京タワー",
    "你好\uff0c世界",
    "안녕하세요",
    "Привет, мир",
    "Καλημέρα",
    "שלום",
    "नमस्ते",
    "مرحبا",
    "🙂",
    "🚀🔑",
    "naïve café",
    "5 €",
    "½ £",
    "→ ok",
    "Ünïcödé",
)
_LABELS = ("EMAIL", "PERSON", "NAME", "PHONE", "CARD", "IBAN", "SSN", "ADDRESS", "DATE", "SECRET")
_FRAMES = ("[{}_{}]", "<{}_{}>", "{{{{{}_{}}}}}", "{}_{}", "⟦{}_{}⟧", "«{}_{}»", "<<{}:{}>>")
_FIRST = ("jane", "john", "maria", "wei", "ali", "anna", "peter", "priya", "lena", "omar", "sam")
_LAST = ("doe", "smith", "garcia", "chen", "khan", "mueller", "rossi", "patel", "novak", "okafor")
_HOSTS = ("example.com", "example.org", "mail.example", "corp.example", "acme.test")
_SYLLABLES = ("ba", "lor", "fen", "ti", "ka", "mu", "zel", "no", "rix", "pa", "quo", "dri", "sha")
_ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

Phrase = Callable[[random.Random], str]


@dataclass(frozen=True, slots=True)
class Task:
    """One request with its one right answer."""

    category: str
    request: str
    answer: str


class TaskMaker:
    """Draws tasks from the word list and the sentences of the corpus."""

    def __init__(self, words: tuple[str, ...], sentences: tuple[str, ...]) -> None:
        self._words = words
        self._sentences = sentences
        self._short = tuple(word for word in words if len(word) <= 4)
        self.makers: dict[str, Callable[[random.Random], Task]] = {
            "repeat": self.repeat,
            "upper": self.upper,
            "lower": self.lower,
            "count words": self.count_words,
            "count letters": self.count_letters,
            "first or last word": self.edge_word,
            "reverse": self.reverse,
            "add": self.add,
        }

    def repeat(self, rng: random.Random) -> Task:
        text = self._any_text(rng)
        frame = rng.choice(
            (
                "Repeat after me: {}",
                "Repeat after me: {}",
                "Repeat: {}",
                "Repeat this: {}",
                "Say exactly: {}",
                "Echo: {}",
                "Repeat the following text: {}",
                "Say: {}",
                "Repeat exactly this text: {}",
                'Repeat after me: "{}"',
                "Reply with exactly: {}",
                "repeat after me: {}",
                "Please repeat: {}",
                "Repeat this text:\n{}",
                "Reply only with: {}",
                'Repeat the following: "{}"',
            )
        )
        return Task("repeat", frame.format(text), text)

    def upper(self, rng: random.Random) -> Task:
        text = self._some_words(rng, 1, 4)
        frame = rng.choice(
            (
                "Write in upper case: {}",
                "Upper-case this: {}",
                "Convert to upper case: {}",
                "Make this upper case: {}",
                "Put this in capital letters: {}",
                "Uppercase: {}",
            )
        )
        return Task("upper", frame.format(text), text.upper())

    def lower(self, rng: random.Random) -> Task:
        text = self._some_words(rng, 1, 4)
        shown = rng.choice((text.upper(), text.title()))
        frame = rng.choice(
            (
                "Write in lower case: {}",
                "Lower-case this: {}",
                "Convert to lower case: {}",
                "Make this lower case: {}",
                "Put this in small letters: {}",
                "Lowercase: {}",
            )
        )
        return Task("lower", frame.format(shown), text)

    def count_words(self, rng: random.Random) -> Task:
        text = self._some_words(rng, 1, 10)
        frame = rng.choice(
            (
                "How many words are in this text: {}",
                "Count the words: {}",
                'How many words are there in "{}"?',
                "Count the words in this text: {}",
            )
        )
        return Task("count words", frame.format(text), str(len(text.split())))

    def count_letters(self, rng: random.Random) -> Task:
        word = rng.choice(self._words)
        frame = rng.choice(
            (
                "How many letters are in the word {}?",
                'How many letters has the word "{}"?',
                "Count the letters in {}",
                "Count the letters: {}",
                "How many letters are in {}?",
            )
        )
        return Task("count letters", frame.format(word), str(len(word)))

    def edge_word(self, rng: random.Random) -> Task:
        words = self._some_words(rng, 2, 7).split()
        which = rng.choice(("first", "last"))
        frame = rng.choice(
            (
                "What is the {} word of this text: {}",
                "Give me the {} word: {}",
                'What is the {} word in "{}"?',
                "Say the {} word of: {}",
            )
        )
        answer = words[0] if which == "first" else words[-1]
        return Task("first or last word", frame.format(which, " ".join(words)), answer)

    def reverse(self, rng: random.Random) -> Task:
        word = rng.choice(self._short)
        frame = rng.choice(
            ("Reverse the word {}", "Write {} backwards", "Reverse: {}", "Spell {} backwards")
        )
        return Task("reverse", frame.format(word), word[::-1])

    def add(self, rng: random.Random) -> Task:
        left, right = rng.randint(0, 10), rng.randint(0, 10)
        frame = rng.choice(
            ("What is {} + {}?", "What is {} plus {}?", "{} + {} =", "Add {} and {}")
        )
        return Task("add", frame.format(left, right), str(left + right))

    def _some_words(self, rng: random.Random, fewest: int, most: int) -> str:
        return " ".join(rng.choice(self._words) for _ in range(rng.randint(fewest, most)))

    def _any_text(self, rng: random.Random) -> str:
        kinds: tuple[Phrase, ...] = (self._plain, self._plain, self._sentence, self._odd_mix)
        return rng.choice(kinds)(rng)

    def _plain(self, rng: random.Random) -> str:
        text = self._some_words(rng, 1, 8)
        return rng.choice((text, text, text.capitalize() + ".", text.title(), text.upper()))

    def _sentence(self, rng: random.Random) -> str:
        words = rng.choice(self._sentences).split()
        start = rng.randrange(len(words))
        return " ".join(words[start : start + rng.randint(1, 12)])

    def _odd_mix(self, rng: random.Random) -> str:
        kinds: tuple[Phrase, ...] = (
            _placeholder,
            _placeholder,
            _email,
            _number,
            _random_string,
            _made_up_word,
            lambda draw: draw.choice(_FOREIGN),
            lambda draw: self._some_words(draw, 1, 4),
        )
        return " ".join(rng.choice(kinds)(rng) for _ in range(rng.randint(1, 4)))


def _placeholder(rng: random.Random) -> str:
    label = rng.choice(_LABELS) + rng.choice(("", "", "_ADDRESS", "_NUMBER"))
    index = rng.choice((str(rng.randint(1, 12)), f"{rng.getrandbits(24):06x}"))
    return rng.choice(_FRAMES).format(label, index)


def _email(rng: random.Random) -> str:
    joint = rng.choice((".", "_", ""))
    return f"{rng.choice(_FIRST)}{joint}{rng.choice(_LAST)}@{rng.choice(_HOSTS)}"


def _number(rng: random.Random) -> str:
    groups = (str(rng.randrange(10 ** rng.randint(1, 4))) for _ in range(rng.randint(1, 4)))
    return rng.choice((" ", "-", "", ".")).join(groups)


def _random_string(rng: random.Random) -> str:
    return "".join(rng.choice(_ALPHANUMERIC) for _ in range(rng.randint(3, 12)))


def _made_up_word(rng: random.Random) -> str:
    word = "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))
    return rng.choice((word, word.capitalize(), word.upper()))
