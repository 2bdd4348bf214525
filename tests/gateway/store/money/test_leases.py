"""The arithmetic of slices, without a database."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets import BudgetKey, Limit
from gateway.store.money.slices import NO_WINDOW, Budget, Claim, Lease, answer, roll, without


ACCOUNT = "org:acme"
KEY = BudgetKey(ACCOUNT, "total")
money = st.integers(0, 1000)


def lease_of(amount: int, spent: int, window_start_us: int = 0) -> Lease:
    return Lease(ACCOUNT, "total", "w1", "run", window_start_us, amount, spent, 60_000_000)


def claim_of(amount: int, spent: int, reserved: int, wanted: int, spare: int = 0) -> Claim:
    return Claim(KEY, 0, amount, spent, reserved, wanted, spare)


def asking(wanted: int, spare: int = 0) -> Claim:
    """Of who has nothing."""
    return Claim(KEY, NO_WINDOW, 0, 0, 0, wanted, spare)


@st.composite
def held(draw: st.DrawFn) -> tuple[Budget, Lease]:
    """A budget of which a worker holds a lease and others hold the rest of what is leased."""
    lease = lease_of(draw(money), draw(money))
    elsewhere = draw(money)
    limit = draw(st.integers(0, 5000))
    leased = lease.outstanding_microusd + elsewhere
    return Budget(Limit(ACCOUNT, limit), 0, lease.spent_microusd + draw(money), leased), lease


@given(held(), money, money, money, money, money)
def test_a_claim_neither_makes_nor_loses_money(
    state: tuple[Budget, Lease], kept: int, newly: int, reserved: int, wanted: int, spare: int
) -> None:
    budget, lease = state
    amount = min(kept, lease.amount_microusd)
    claim = claim_of(amount, lease.spent_microusd + newly, reserved, wanted, spare)
    after, grant, granted = answer(budget, lease, claim, lease_of(0, 0))
    assert granted is not None
    elsewhere = budget.leased_microusd - lease.outstanding_microusd
    assert grant.elsewhere_microusd == elsewhere
    assert after.leased_microusd == elsewhere + granted.outstanding_microusd
    assert after.spent_microusd == budget.spent_microusd + newly
    assert granted.amount_microusd == grant.amount_microusd >= granted.spent_microusd


@given(held(), money, money, money, money)
def test_what_is_granted_was_left(
    state: tuple[Budget, Lease], newly: int, reserved: int, wanted: int, spare: int
) -> None:
    budget, lease = state
    spent = lease.spent_microusd + newly
    report = claim_of(lease.amount_microusd, spent, reserved, 0)
    told, _, _ = answer(budget, lease, report, lease_of(0, 0))
    claim = claim_of(lease.amount_microusd, spent, reserved, wanted, spare)
    after, grant, _ = answer(budget, lease, claim, lease_of(0, 0))
    kept = max(lease.amount_microusd, spent)
    granted = grant.amount_microusd - kept
    assert granted <= max(wanted + spent + reserved - kept, 0) + spare, "more than was welcome"
    assert 0 <= granted <= max(told.left_microusd, 0)
    assert after.left_microusd == told.left_microusd - granted
    free = grant.amount_microusd - spent - reserved
    assert free >= wanted or after.left_microusd <= 0 or wanted == 0
    assert wanted or spare or not granted, "who asks for nothing gets nothing"
    tight = budget.limit.limit_microusd // 50
    assert granted <= wanted + spent + reserved or after.left_microusd >= tight, "nothing ahead"


@given(held(), money, money)
def test_a_report_that_is_repeated_changes_nothing(
    state: tuple[Budget, Lease], newly: int, kept: int
) -> None:
    budget, lease = state
    amount = min(kept, lease.amount_microusd)
    claim = claim_of(amount, lease.spent_microusd + newly, 0, 0)
    once, first, granted = answer(budget, lease, claim, lease_of(0, 0))
    twice, second, _ = answer(once, granted, claim, lease_of(0, 0))
    assert (twice, second) == (once, first)


@given(held())
def test_a_lease_that_is_written_off_counts_as_spent(state: tuple[Budget, Lease]) -> None:
    budget, lease = state
    after = without(budget, lease)
    assert after.left_microusd == budget.left_microusd
    assert after.spent_microusd == budget.spent_microusd + lease.outstanding_microusd


def test_a_grant_that_never_arrived_goes_back_to_the_budget() -> None:
    budget = Budget(Limit(ACCOUNT, 100), 0, 0, 60)
    claim = Claim(KEY, -1, 0, 0, 0)
    after, grant, _ = answer(budget, lease_of(60, 0), claim, lease_of(0, 0))
    assert (after.left_microusd, after.spent_microusd, grant.is_fresh) == (100, 0, True)


def test_who_leases_ahead_has_a_good_part_and_leaves_one_to_others() -> None:
    """Else requests wait for what lies idle in another worker, or each for the database."""
    limit = 1_000_000
    budget = Budget(Limit(ACCOUNT, limit), 0, 0, 0)
    leased = []
    for _ in range(8):
        budget, grant, _ = answer(budget, None, asking(1, limit), lease_of(0, 0))
        leased.append(grant.amount_microusd)
    assert leased[0] > limit // 10
    assert budget.left_microusd > limit // 4


def test_who_has_enough_gets_no_more() -> None:
    budget = Budget(Limit(ACCOUNT, 1000), 0, 0, 100)
    _, grant, _ = answer(budget, lease_of(100, 0), claim_of(100, 0, 20, 30), lease_of(0, 0))
    assert grant.amount_microusd == 100


def test_who_leases_ahead_has_no_more_for_asking_twice() -> None:
    """As requests do that come while the database is asked for the one before them."""
    budget = Budget(Limit(ACCOUNT, 1_000_000), 0, 0, 0)
    budget, grant, lease = answer(budget, None, asking(1, 1000), lease_of(0, 0))
    again = claim_of(grant.amount_microusd, 0, 1, 1, 1000)
    budget, grant, lease = answer(budget, lease, again, lease_of(0, 0))
    assert grant.amount_microusd == 1002
    news = claim_of(grant.amount_microusd, 0, 2, 0, 1000)
    assert answer(budget, lease, news, lease_of(0, 0))[1].amount_microusd == 1002


def test_a_lease_of_which_less_is_booked_than_its_holder_was_told_is_another_one() -> None:
    """As in a database that was put back: what it knows of no more is not counted on top of it."""
    budget = Budget(Limit(ACCOUNT, 100), 0, 10, 50)
    claim = Claim(KEY, 0, 60, 55, 0, booked_microusd=50)
    after, grant, _ = answer(budget, lease_of(60, 10), claim, lease_of(0, 0))
    assert (after.spent_microusd, after.leased_microusd, grant.is_fresh) == (10, 0, True)


@given(held(), money, money)
def test_who_claims_what_was_written_off_gets_nothing_before_it_knows(
    state: tuple[Budget, Lease], spent: int, wanted: int
) -> None:
    budget, lease = state
    claim = claim_of(lease.amount_microusd, spent, 0, wanted)
    after, grant, granted = answer(budget, None, claim, lease_of(0, 0))
    assert (after, granted, grant.amount_microusd) == (budget, None, 0)
    assert (grant.is_fresh, grant.is_gone, grant.left_microusd) == (
        True,
        True,
        budget.left_microusd,
    )
    assert grant.is_tight is (budget.left_microusd <= budget.limit.limit_microusd // 50)
    assert grant.elsewhere_microusd == budget.leased_microusd


def test_more_than_is_wanted_is_leased_only_while_there_is_plenty() -> None:
    plenty = Budget(Limit(ACCOUNT, 10_000), 0, 0, 0)
    _, much, _ = answer(plenty, None, asking(10, 500), lease_of(0, 0))
    assert much.amount_microusd == 510
    scarce = Budget(Limit(ACCOUNT, 10_000), 0, 9_850, 0)
    _, little, _ = answer(scarce, None, asking(10, 500), lease_of(0, 0))
    assert little.amount_microusd == 10
    assert little.is_tight
    for spent, is_tight in ((9_799, False), (9_800, True)):
        _, told, _ = answer(
            Budget(Limit(ACCOUNT, 10_000), 0, spent, 0), None, asking(0), lease_of(0, 0)
        )
        assert told.is_tight is is_tight, "two percent are handed out one by one"


def test_a_slice_ends_with_its_lease_or_its_window_whichever_is_first() -> None:
    day_us = 86_400_000_000
    budget = Budget(Limit(ACCOUNT, 100, "day"), 0, 0, 0)
    for expires_us, until_us in ((60_000_000, 60_000_000), (day_us + 5, day_us)):
        lease = Lease(ACCOUNT, "day", "w1", "run", 0, 0, 0, expires_us)
        _, grant, _ = answer(budget, None, asking(10), lease)
        assert grant.valid_until_us == until_us


def test_a_window_never_goes_back() -> None:
    later = Budget(Limit(ACCOUNT, 100, "day"), 86_400_000_000, 7, 0)
    assert roll(later, 0) == later
    assert roll(later, 2 * 86_400_000_000) == Budget(later.limit, 2 * 86_400_000_000, 0, 0)
