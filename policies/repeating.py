"""Says whether an answer may be cached and for how long, as strictly as the strictest level.

The matching preference sets this, or the defaults. In a policy combined from several levels the
nearest level's preferences come first, so each level is also asked by itself, and the strictest
answer counts: the order of the levels cannot reopen what one of them closed.
"""

from policies.decide import route_of
from policies.decision import Decision
from policies.document import Defaults, Preference
from policies.facts import Facts
from policies.program import PolicyDocument


def repeating(document: PolicyDocument, facts: Facts, decision: Decision) -> Defaults:
    """The `cache_s` and `cache_like_percent` that hold for the answer to a request."""
    rules, name = document.body.preferences, decision.matched_preference
    holds = _said(document.body.defaults, next((each for each in rules if each.name == name), None))
    for level in document.levels:
        holds = _stricter(holds, _said(level.body.defaults, _matching(level, facts)))
    return holds


def _said(defaults: Defaults, rule: Preference | None) -> Defaults:
    """The numbers of a preference, else the document's defaults."""
    span_s, like = defaults.cache_s, defaults.cache_like_percent
    if rule is not None:
        span_s = span_s if rule.cache_s is None else rule.cache_s
        like = like if rule.cache_like_percent is None else rule.cache_like_percent
    return Defaults(cache_s=span_s, cache_like_percent=like)


def _matching(level: PolicyDocument, facts: Facts) -> Preference | None:
    """The preference that would match with this level alone.

    For a route of another level it is one of this level's general preferences.
    """
    route = route_of(facts)
    if route not in level.preference_guards:
        route = ""
    bit = level.preference_guards[route].first(facts)
    if not bit:
        return None
    return level.preferences_by_route[route][bit.bit_length() - 1].preference


def _stricter(one: Defaults, other: Defaults) -> Defaults:
    """The shorter span and the closer likeness; a level without a value changes nothing."""
    span_s, like = one.cache_s, one.cache_like_percent
    if span_s is not None and other.cache_s is not None:
        span_s = min(span_s, other.cache_s)
    if like is not None and other.cache_like_percent is not None:
        like = max(like, other.cache_like_percent)
    return Defaults(cache_s=span_s, cache_like_percent=like)
