"""Parts of short posts: words in any case, names of the famous, handles, tags and links."""

import random
from collections.abc import Callable

from classifiers.pii.training.people import People
from classifiers.pii.training.words import Pools, pick


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Posts:
    """Slot name → maker, for the templates of posts."""

    def __init__(self, pools: Pools, people: People) -> None:
        self._pools = pools
        self._people = people

    def makers(self) -> dict[str, Callable[[random.Random], str]]:
        return {
            "famous_any": self._famous,
            "famous_last": lambda rng: pick(rng, self._pools["famous"]).split()[-1],
            "famous_joined": lambda rng: pick(rng, self._pools["famous"]).replace(" ", ""),
            "first_any": self._first,
            "post_words": self._words,
            "post_caps": lambda rng: self._words(rng).upper(),
            "title_words": self._title,
            "handle": self._handle,
            "hashtag": self._hashtag,
            "link": lambda rng: f"http{pick(rng, ('', 's'))}://t.co/{_letters(rng, 10)}",
        }

    def _famous(self, rng: random.Random) -> str:
        """A person that posts are about, or anybody: in full, in part, as people type it."""
        roll = rng.random()
        name = self._people.full(rng) if roll < 0.35 else pick(rng, self._pools["famous"])
        if roll > 0.94:
            name = pick(rng, self._pools["figure"])
        part = rng.random()
        if part < 0.3:
            name = name.split()[-1]
        elif part < 0.42:
            name = name.split()[0]
        return _typed(name, rng)

    def _first(self, rng: random.Random) -> str:
        return _typed(self._people.first(rng, "any" if rng.random() < 0.7 else ""), rng)

    def _words(self, rng: random.Random) -> str:
        words = [pick(rng, self._pools["post_word"]) for _ in range(1 + int(rng.random() * 7))]
        if rng.random() < 0.5:
            words[0] = words[0].capitalize()
        return " ".join(words) + pick(rng, ("", "", "", "!", "...", "?", " :)", ",", " \U0001f602"))

    def _title(self, rng: random.Random) -> str:
        """A title of books, songs and headlines: words with capitals."""
        kinds = ("post_word", "thing", "animal", "color", "nonperson", "topic")
        count = 1 + int(rng.random() * 4)
        words = " ".join(pick(rng, self._pools[pick(rng, kinds)]) for _ in range(count))
        return words.title() if rng.random() < 0.8 else words.capitalize()

    def _handle(self, rng: random.Random) -> str:
        roll = rng.random()
        if roll < 0.5:
            return self._people.username(rng)
        word = pick(rng, self._pools["post_word"])
        if roll < 0.75:
            return f"{word.title()}{pick(rng, ('', '_'))}{self._people.first(rng)}"
        return f"{word}{pick(rng, self._pools['animal'])}{pick(rng, ('', 'x', '_xo', '23', '_'))}"

    def _hashtag(self, rng: random.Random) -> str:
        words = self._title(rng).split()[:2]
        joined = "".join(words)
        return "#" + (joined.lower() if rng.random() < 0.4 else joined)


def _typed(name: str, rng: random.Random) -> str:
    roll = rng.random()
    return name.lower() if roll < 0.22 else name.upper() if roll < 0.27 else name


def _letters(rng: random.Random, count: int) -> str:
    return "".join(pick(rng, _LETTERS) for _ in range(count))
