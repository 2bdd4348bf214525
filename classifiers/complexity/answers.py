"""What can be seen in a cheap model's answer without knowing the right one.

Whether sums hold, what was given is used and what was computed leads somewhere; whether the answer
hedges, refuses, stops short or misses its form. Bounded work; no word of either text is kept.
"""

import re
from math import log1p

from msgspec import Struct

from classifiers.complexity.arithmetic import Equation, equations, near, numbers


ANSWER_LENGTH_MAX = 8_000
NAMES = (
    "wrong_sums",
    "any_wrong_sum",
    "repeated_wrongly",
    "unsupported_operands",
    "unused_results",
    "any_unused_result",
    "final_is_a_result",
    "final_is_last_result",
    "final_in_prompt",
    "final_not_whole",
    "final_zero",
    "decimal_results",
    "negative_result",
    "no_sums",
    "sums_less_numbers",
    "distinct_results",
    "numbers_from_nowhere",
    "prompt_numbers_unused",
    "any_prompt_number_unused",
    "number_words_unused",
    "log_words",
    "lines",
    "words_per_line",
    "blank_lines",
    "doubts",
    "no_final_mark",
    "prompt_log_words",
    "prompt_sentences",
    "prompt_numbers",
    "prompt_relations",
    "prompt_names",
    "alarms",
)
_MARK = "####"
_VALUES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "dozen": 12,
    "twenty": 20,
    "thirty": 30,
    "twice": 2,
    "double": 2,
    "doubled": 2,
    "triple": 3,
    "tripled": 3,
    "thrice": 3,
    "half": 2,
    "third": 3,
    "quarter": 4,
}
_WHOLE_WITHIN = 1e-9
_REFUSAL_WITHIN = 400
_CUT_OFF_FROM = 200
_BARE_NUMBER_LENGTH = 40
_COMPARABLE_WORDS = 3
_WORD = re.compile(r"[a-z]+")
_SENTENCE = re.compile(r"[.?!]\s")
_DOUBT = re.compile(
    r"\b(however|but|assum\w{1,4}|let|because|since|cannot|not|unknown|information|unclear)\b"
)
_RELATION = re.compile(r"\b(half|twice|third|quarter|times|percent|ratio|average|than)\b")
_CAPITALISED = re.compile(r"\b[A-Z][a-z]+")
_CHOICE = re.compile(r"\s*\(?([A-H])\)?\s*(?:[).:,]|$)")
_LAST_CHOICE = re.compile(r"answer(?: is)?:?\s*\(?([A-H])\b")
_REFUSAL = re.compile(
    r"\b(?:i (?:can(?:no|')t|am (?:not able|unable)|won't)|i'm (?:sorry|unable|not able)|"
    r"as an ai|cannot (?:help|assist|provide))\b"
)
_CLOSING = (".", "!", "?", "`", ")", "]", "}", '"', "'", ":", "*", "|")


class Seen(Struct, frozen=True):
    """One answer: `values` in the order of NAMES; `calculates`: sums are what it is about."""

    values: tuple[float, ...]
    calculates: bool
    refuses: bool
    empty: bool
    cut_off: bool

    def __repr__(self) -> str:
        return f"Seen(calculates={self.calculates}, refuses={self.refuses})"


def look(prompt: str, answer: str) -> Seen:
    """Measures of one answer to one prompt."""
    prompt, answer = prompt[:ANSWER_LENGTH_MAX], answer[:ANSWER_LENGTH_MAX]
    body, _, end = answer.partition(_MARK)
    sums = equations(answer)
    given = set(numbers(prompt))
    finals = numbers(end) if end.strip() else numbers(answer)[-1:]
    values = [
        *_sums_seen(prompt, body, sums, given, finals[0] if finals else 0.0),
        *_style_seen(body, marked=_MARK in answer),
        *_prompt_seen(prompt, given),
    ]
    by_name = dict(zip(NAMES, values, strict=False))
    alarms = ("any_wrong_sum", "repeated_wrongly", "any_unused_result", "final_not_whole")
    values.append(sum(by_name[name] for name in (*alarms, "any_prompt_number_unused")))
    low = answer.lower()
    stripped = answer.rstrip()
    return Seen(
        tuple(map(float, values)),
        calculates=bool(sums) or _MARK in answer,
        refuses=bool(_REFUSAL.search(low[:_REFUSAL_WITHIN])),
        empty=not stripped,
        cut_off=len(stripped) > _CUT_OFF_FROM
        and not stripped.endswith(_CLOSING)
        and _MARK not in answer,
    )


def _sums_seen(
    prompt: str, body: str, sums: list[Equation], given: set[float], final: float
) -> list[float]:
    spoken = {float(_VALUES[word]) for word in _WORD.findall(prompt.lower()) if word in _VALUES}
    known = given | spoken | {1.0, 100.0}
    used: set[float] = set()
    results: list[float] = []
    unsupported = 0
    for sum_ in sums:
        used.update(sum_.operands)
        unsupported += sum(not _among(number, known) for number in sum_.operands)
        known.add(abs(sum_.stated))
        results.append(sum_.stated)
    distinct = set(results)
    idle = sum(not near(value, final) and not _among(value, used) for value in distinct)
    wrong = sum(sum_.wrong for sum_ in sums)
    unread = given - used - ({final} if not sums else set())
    written = set(numbers(body))
    return [
        min(wrong, 3),
        wrong > 0,
        any(s.repeated is not None and not near(s.repeated, abs(s.stated)) for s in sums),
        min(unsupported, 5),
        min(idle, 4),
        idle > 0,
        _among(final, distinct),
        bool(results) and near(results[-1], final),
        final in given,
        abs(final - round(final)) > _WHOLE_WITHIN,
        final == 0,
        min(sum(abs(value - round(value)) > _WHOLE_WITHIN for value in results), 4),
        any(value < 0 for value in results),
        not sums,
        max(-6, min(6, len(distinct) - len(given | spoken))),
        len(distinct) / (len(results) or 1),
        min(len(written - given - distinct), 8),
        min(len(unread), 4),
        bool(unread),
        min(len(spoken - used), 3),
    ]


def _style_seen(body: str, *, marked: bool) -> list[float]:
    words = len(body.split())
    lines = sum(1 for line in body.split("\n") if line.strip()) or 1
    return [
        log1p(words),
        min(lines, 12),
        min(words / lines, 60),
        min(body.count("\n\n"), 6),
        min(len(_DOUBT.findall(body.lower())), 5),
        not marked,
    ]


def _prompt_seen(prompt: str, given: set[float]) -> list[float]:
    return [
        log1p(len(prompt.split())),
        min(len(_SENTENCE.findall(prompt)), 10),
        min(len(given), 10),
        min(len(_RELATION.findall(prompt.lower())), 6),
        min(len(set(_CAPITALISED.findall(prompt))), 12),
    ]


def _among(number: float, known: set[float]) -> bool:
    return number in known or any(near(number, one) for one in known)


def final_answer(text: str) -> str:
    """What an answer comes to, for comparison: its choice, its last number, or its words."""
    text = text[:ANSWER_LENGTH_MAX]
    choice = _CHOICE.match(text) or _LAST_CHOICE.search(text)
    if choice:
        return choice.group(1)
    _, mark, end = text.partition(_MARK)
    found = numbers(end if mark else text)
    if found and (mark or len(text) < _BARE_NUMBER_LENGTH):
        return f"{found[-1]:g}"
    return " ".join(_WORD.findall(text.lower()))


def agreement(one: str, other: str) -> float:
    """How far two final answers say the same, 0 to 1: equal, or share of words in common."""
    if one == other:
        return 1.0
    first, second = set(one.split()), set(other.split())
    if min(len(first), len(second)) < _COMPARABLE_WORDS:
        return 0.0
    return len(first & second) / len(first | second)
