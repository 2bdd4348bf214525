"""The scope of a key, and whether a change narrows or widens it. Pure.

A change that narrows takes effect at once, and one that widens needs two people, so changes that
only take something away have to be recognised. A change that cannot be judged counts as wider:
labels, for example, which a policy may forbid, permit or bill by.
"""

from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct

from gateway.errors import RequestInvalid
from gateway.types import Translation
from policies.labels import is_label


LABELS_MAX: Final = 50
ScopeField = Literal["models", "expires_us", "labels", "translation"]
_LENIENCE: Final[tuple[Translation, ...]] = ("strict", "warn", "lenient")


class KeyScope(Struct, frozen=True):
    """What the holder of the key's secret may do, as far as the key itself decides it."""

    models: tuple[str, ...] | None
    """Targets it may use, in order; None for all that policy permits."""
    expires_us: int | None
    """None for never."""
    labels: tuple[str, ...]
    translation: Translation


class ScopeChange(Struct, frozen=True):
    """One field of the scope, before and after."""

    field: ScopeField
    is_wider: bool
    gained: tuple[str, ...] = ()
    """Models and labels that are added; empty if all models that policy permits are added."""
    lost: tuple[str, ...] = ()


def scope_of(
    models: Collection[str] | None,
    expires_us: int | None,
    labels: Collection[str],
    translation: Translation,
) -> KeyScope:
    """Models in order, so that equal scopes compare equal; labels as they are."""
    ordered = None if models is None else tuple(sorted(set(models)))
    return KeyScope(ordered, expires_us, tuple(labels), translation)


def changes(before: KeyScope, after: KeyScope) -> tuple[ScopeChange, ...]:
    """The differences, the most important first."""
    found = []
    if before.models != after.models:
        had, gets = set(before.models or ()), set(after.models or ())
        is_wider = before.models is not None and (after.models is None or not gets <= had)
        gained = tuple(sorted(gets - had)) if before.models is not None else ()
        lost = tuple(sorted(had - gets)) if after.models is not None else ()
        found.append(ScopeChange("models", is_wider, gained, lost))
    if before.expires_us != after.expires_us:
        ends, would = before.expires_us, after.expires_us
        is_wider = ends is not None and (would is None or would > ends)
        found.append(ScopeChange("expires_us", is_wider))
    if set(before.labels) != set(after.labels):
        gained = tuple(sorted(set(after.labels) - set(before.labels)))
        lost = tuple(sorted(set(before.labels) - set(after.labels)))
        found.append(ScopeChange("labels", is_wider=True, gained=gained, lost=lost))
    if before.translation != after.translation:
        is_wider = _LENIENCE.index(after.translation) > _LENIENCE.index(before.translation)
        found.append(ScopeChange("translation", is_wider))
    return tuple(found)


def is_widening(before: KeyScope, after: KeyScope) -> bool:
    """Whether any of it lets the key do more."""
    return any(each.is_wider for each in changes(before, after))


def both(one: KeyScope, other: KeyScope) -> KeyScope:
    """What both permit; the labels are those of `one`."""
    models = one.models if other.models is None else other.models
    if one.models is not None and other.models is not None:
        models = tuple(sorted(set(one.models) & set(other.models)))
    ends = [each for each in (one.expires_us, other.expires_us) if each is not None]
    translation = min(one.translation, other.translation, key=_LENIENCE.index)
    return KeyScope(models, min(ends, default=None), one.labels, translation)


def new_models(before: KeyScope, after: KeyScope, configured: Collection[str]) -> tuple[str, ...]:
    """The configured models that the key did not have before, in order."""
    if before.models is None:
        return ()
    gets = configured if after.models is None else after.models
    return tuple(sorted(set(gets) - set(before.models)))


def check_labels(labels: Collection[str]) -> None:
    """Raises RequestInvalid for labels that are not words: forms separate labels by spaces."""
    if len(labels) > LABELS_MAX or not all(map(is_label, labels)):
        raise RequestInvalid(f"up to {LABELS_MAX} words that can be seen", parameter="labels")


def check_models(models: Collection[str] | None, known: Collection[str]) -> None:
    """Raises RequestInvalid for a target that is not configured: a typing error would be silent."""
    unknown = sorted(set(models or ()) - set(known))
    if unknown:
        raise RequestInvalid(f"there is no model {unknown[0][:80]!r} here", parameter="models")
