"""Judges a cheap model's answer without knowing the right one.

It checks whether sums hold, given numbers are used and computed ones lead somewhere; and whether
the answer hedges, refuses, stops short or misses its form. Bounded work; no word of either text is
kept.
"""

import re
from collections import Counter
from math import log1p

from msgspec import Struct

from classifiers.complexity.arithmetic import Equation, equations, near, numbers


ANSWER_LENGTH_MAX = 8_000
NAMES = (
    "wrong_sums",
    "any_wrong_sum",
    "repeated_wrongly",
    "numbers_reused",
    "unused_results",
    "any_unused_result",
    "final_is_a_result",
    "final_is_last_result",
    "final_not_whole",
    "final_zero",
    "decimal_results",
    "no_sums",
    "sums_less_numbers",
    "distinct_results",
    "numbers_from_nowhere",
    "prompt_numbers_unused",
    "any_prompt_number_unused",
    "number_words_unused",
    "log_words",
    "last_line_words",
    "question_taken_up",
    "doubts",
    "no_final_mark",
    "stops_in_a_sum",
    "prompt_log_words",
    "prompt_sentences",
    "prompt_numbers",
    "prompt_relations",
    "prompt_names",
    "alarms",
)
_MARK = "####"
_OPEN_LENGTH = 80
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
_OPEN_SUM = re.compile(r"<<[\d(.$][^<>\n]*$")
_OPEN_OPERATION = re.compile(r"[\d)] ?[-+*/=\u00d7\u00f7] ?\$?\s*$")
_LONG_WORD = re.compile(r"[a-z]{4,}")
_SENTENCE = re.compile(r"[.?!]\s")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")
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
    """One answer: `values` in the order of NAMES; `calculates`: whether it is about sums."""

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
    unfinished = _stops_in_a_sum(answer)
    given = set(numbers(prompt))
    finals = numbers(end) if end.strip() else numbers(answer)[-1:]
    values = [
        *_sums_seen(prompt, body, sums, given, finals[0] if finals else 0.0),
        *_style_seen(prompt, body, marked=_MARK in answer),
        unfinished,
        *_prompt_seen(prompt, given),
    ]
    by_name = dict(zip(NAMES, values, strict=False))
    alarms = ("any_wrong_sum", "repeated_wrongly", "any_unused_result", "final_not_whole")
    values.append(sum(by_name[name] for name in (*alarms, "any_prompt_number_unused")))
    low = answer.lower()
    stripped = answer.rstrip()
    return Seen(
        tuple(map(float, values)),
        calculates=bool(sums) or _MARK in answer or unfinished,
        refuses=bool(_REFUSAL.search(low[:_REFUSAL_WITHIN])),
        empty=not stripped,
        cut_off=unfinished
        or (
            len(stripped) > _CUT_OFF_FROM
            and not stripped.endswith(_CLOSING)
            and _MARK not in answer
        ),
    )


def _stops_in_a_sum(answer: str) -> bool:
    """Whether a marked sum at the end is not closed, or an operation lacks its number."""
    if _MARK in answer:
        return False
    end = answer[-_OPEN_LENGTH:]
    return bool(_OPEN_SUM.search(end) or _OPEN_OPERATION.search(end))


def _sums_seen(
    prompt: str, body: str, sums: list[Equation], given: set[float], final: float
) -> list[float]:
    spoken = {float(_VALUES[word]) for word in _WORD.findall(prompt.lower()) if word in _VALUES}
    operands = Counter(number for sum_ in sums for number in sum_.operands)
    used = set(operands)
    results = [sum_.stated for sum_ in sums]
    distinct = set(results)
    idle = sum(not near(value, final) and not _among(value, used) for value in distinct)
    wrong = sum(sum_.wrong for sum_ in sums)
    unread = given - used - ({final} if not sums else set())
    written = set(numbers(body))
    return [
        min(wrong, 3),
        wrong > 0,
        any(s.repeated is not None and not near(s.repeated, abs(s.stated)) for s in sums),
        min(sum(operands[number] - 1 for number in given & used), 4),
        min(idle, 4),
        idle > 0,
        _among(final, distinct),
        bool(results) and near(results[-1], final),
        abs(final - round(final)) > _WHOLE_WITHIN,
        final == 0,
        min(sum(abs(value - round(value)) > _WHOLE_WITHIN for value in results), 4),
        not sums,
        max(-6, min(6, len(distinct) - len(given | spoken))),
        len(distinct) / (len(results) or 1),
        min(len(written - given - distinct), 8),
        min(len(unread), 4),
        bool(unread),
        min(len(spoken - used), 3),
    ]


def _style_seen(prompt: str, body: str, *, marked: bool) -> list[float]:
    """How it is worded, and how much of the question its last line repeats."""
    last = body.rstrip().rpartition("\n")[2].lower()
    asked = set(_LONG_WORD.findall(_question(prompt)))
    return [
        log1p(len(body.split())),
        min(len(last.split()), 60),
        len(asked.intersection(_LONG_WORD.findall(last))) / (len(asked) or 1),
        min(len(_DOUBT.findall(body.lower())), 5),
        not marked,
    ]


def _question(prompt: str) -> str:
    """The last sentence with a question, or the last sentence."""
    sentences = _SENTENCE_END.split(prompt.strip())
    return next((s for s in reversed(sentences) if "?" in s), sentences[-1]).lower()


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
    """The gist of an answer, for comparison: its choice, its last number, or its words."""
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
    """How far two final answers agree, 0 to 1: equal, or share of words in common."""
    if one == other:
        return 1.0
    first, second = set(one.split()), set(other.split())
    if min(len(first), len(second)) < _COMPARABLE_WORDS:
        return 0.0
    return len(first & second) / len(first | second)
