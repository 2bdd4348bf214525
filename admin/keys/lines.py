"""Keys as people see them: their state in a word, and what they used of which limit. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.money.budgets import WindowKind
from gateway.store.identity.key_lists import EXPIRING_US, UNUSED_US
from gateway.store.identity.key_names import KeyFacts
from gateway.store.money.slices import Budget


class Spending(Struct, frozen=True):
    """A limit and how much of it is gone, in micro-dollars."""

    account: str
    window: WindowKind
    limit_microusd: int
    used_microusd: int
    held_microusd: int
    """What workers have leased of it and not reported as used."""

    @property
    def left_microusd(self) -> int:
        return self.limit_microusd - self.used_microusd - self.held_microusd

    @property
    def share(self) -> float:
        """Used of the limit; a limit of nothing is used up."""
        return self.used_microusd / self.limit_microusd if self.limit_microusd else 1.0


class BoundTo(Struct, frozen=True):
    """By whose tokens a key is proved that has no secret."""

    issuer: str
    """Its name in the settings."""
    subject: str
    claims: Mapping[str, str]


class KeyLine(Struct, frozen=True):
    """One key, without anything secret."""

    key_id: str
    name: str
    workspace: str
    project: str
    owner: str
    created_us: int
    last_us: int
    """When it last asked; 0 for never."""
    expires_us: int | None
    revoked_us: int | None
    former_until_us: int | None
    """Until when the secret before a rotation is good; None where there is none."""
    models: tuple[str, ...] | None
    """What it may use; None for all that policy permits."""
    labels: tuple[str, ...]
    translation: str
    states: tuple[str, ...]
    """Of `gateway.store.identity.key_lists.STATES`, the one that says most first."""
    spendings: tuple[Spending, ...] = ()
    revoked_revision: int | None = None
    """From this revision of the configuration on it is dead; None also where it was not kept."""
    workload: BoundTo | None = None
    """None of a key that has a secret."""

    @property
    def state(self) -> str:
        return self.states[0]

    @property
    def is_live(self) -> bool:
        return "live" in self.states


def spending_of(budget: Budget) -> Spending:
    """A budget as people see it."""
    return Spending(
        budget.limit.account,
        budget.limit.window,
        budget.limit.limit_microusd,
        budget.spent_microusd,
        budget.leased_microusd,
    )


def key_line(
    key: KeyFacts,
    last_used: Mapping[str, int],
    spendings: Mapping[str, Sequence[Spending]],
    now_us: int,
) -> KeyLine:
    """A stored key beside what is known of its use."""
    last_us = last_used.get(key.key_id, 0)
    until_us = key.former_until_us
    if until_us is not None and until_us <= now_us:
        until_us = None
    return KeyLine(
        key_id=key.key_id,
        name=key.name,
        workspace=key.workspace,
        project=key.project,
        owner=key.owner,
        created_us=key.created_us,
        last_us=last_us,
        expires_us=key.expires_us,
        revoked_us=key.revoked_us,
        former_until_us=until_us,
        models=key.models,
        labels=key.labels,
        translation=key.translation,
        states=_states(key, last_us, until_us, now_us),
        spendings=tuple(spendings.get(f"key:{key.key_id}", ())),
        revoked_revision=key.revoked_revision,
        workload=_bound_to(key),
    )


def _bound_to(key: KeyFacts) -> BoundTo | None:
    if (found := key.workload) is None:
        return None
    return BoundTo(found.issuer, found.subject, dict(found.claims))


def _states(key: KeyFacts, last_us: int, until_us: int | None, now_us: int) -> tuple[str, ...]:
    if key.revoked_us is not None:
        return ("revoked",)
    if not key.is_live(now_us):
        return ("expired",)
    found = []
    if until_us is not None:
        found.append("overlapping")
    if key.expires_us is not None and key.expires_us - now_us < EXPIRING_US:
        found.append("expiring")
    if now_us - (last_us or key.created_us) > UNUSED_US:
        found.append("unused")
    return (*found, "live")
