"""The cascade gate: the probability that a cheap model's answer is not good enough.

It joins what the prompt says (the fast path), what the answer shows (sums, form, refusal) and, if
other cheap models answered too, whether they agree. Log-odds add up; nothing here calls a model.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

from msgspec import Struct

from classifiers.complexity.answers import Seen, agreement, final_answer, look
from classifiers.complexity.artefact import Gate
from classifiers.complexity.model import Complexity


# Without labels to learn them from, evidence against an answer that says nothing counts as this
# many to one in log-odds; calibration per tenant corrects the size, the direction is safe.
EMPTY, REFUSED, CUT_OFF = 6.0, 3.0, 1.5
PRIOR_AGREEMENT, PRIOR_ANSWERS = 0.65, 20.0
_MOST_CERTAIN = 1e-4


class CascadeVerdict(Struct, frozen=True):
    """`score`: P(cheap answer not good enough); `p_weak` = 1 - score; `reasons` add up to it."""

    score: float
    p_weak: float
    reasons: tuple[tuple[str, float], ...]


def judge(
    gate: Gate,
    complexity: Complexity,
    prompt: str,
    answers: Sequence[tuple[str, str]],
    reliability: Mapping[str, float],
) -> CascadeVerdict:
    """Judge the first of `answers` (model, text); the others are second opinions.

    `reliability` is by model, from `reliabilities`; a missing model has the prior one.
    """
    first = answers[0][1]
    seen = look(prompt, first)
    parts = [*_from_answer(gate, complexity, seen)]
    final = final_answer(first)
    for model, text in answers[1:]:
        rate = reliability.get(model, PRIOR_AGREEMENT)
        weight = max(0.0, log(rate / (1.0 - rate)))
        same = agreement(final, final_answer(text))
        parts.append((f"agreement:{model}", weight * (1.0 - 2.0 * same)))
    odds = sum(value for _, value in parts)
    score = 1.0 / (1.0 + exp(-max(-60.0, min(60.0, odds))))
    return CascadeVerdict(score, 1.0 - score, tuple(parts))


def _from_answer(gate: Gate, complexity: Complexity, seen: Seen) -> Iterable[tuple[str, float]]:
    if seen.calculates:
        bounded = map(min, map(max, seen.values, gate.low), gate.high)
        worth = sum(weight * value for weight, value in zip(gate.weights, bounded, strict=True))
        yield "calculation", gate.offset + worth
    else:
        chance = min(1 - _MOST_CERTAIN, max(_MOST_CERTAIN, 1.0 - complexity.weak_suffices))
        yield "prompt", log(chance / (1.0 - chance))
    if seen.empty:
        yield "empty", EMPTY
    if seen.refuses:
        yield "refusal", REFUSED
    if seen.cut_off:
        yield "cut_off", CUT_OFF


def reliabilities(panels: Iterable[Mapping[str, str]]) -> dict[str, float]:
    """By model, how often its answers agree with those of the others, learned without labels.

    A model whose answers no other shares is a poor witness; one that agrees with many is a good
    one. Few answers lean on the prior.
    """
    agreed: dict[str, float] = {}
    counted: dict[str, int] = {}
    for panel in panels:
        finals = [(model, final_answer(text)) for model, text in panel.items()]
        for model, final in finals:
            others = [agreement(final, other) for name, other in finals if name != model]
            agreed[model] = agreed.get(model, 0.0) + sum(others)
            counted[model] = counted.get(model, 0) + len(others)
    return {
        model: min(
            1 - _MOST_CERTAIN,
            (agreed[model] + PRIOR_AGREEMENT * PRIOR_ANSWERS) / (counted[model] + PRIOR_ANSWERS),
        )
        for model in agreed
    }
