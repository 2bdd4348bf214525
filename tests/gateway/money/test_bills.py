"""What is charged for a request's calls: what was counted exactly, estimates up to a bound."""

import pytest
from msgspec import structs

from gateway.money.bills import Bill, as_asked, charged
from gateway.types import Usage
from tests.gateway.providers.samples import make_target


SAMPLE = make_target()
TARGET = structs.replace(
    SAMPLE,
    price=structs.replace(SAMPLE.price, input_microusd_per_mtok=1_000_000, batch_percent=50),
)
"""Each token of input costs a micro-dollar."""


def counted(cost: int) -> Bill:
    return Bill(TARGET, Usage(input_tokens=cost))


def estimated(cost: int) -> Bill:
    return Bill(TARGET, Usage(input_tokens=cost, estimated=True))


NOTHING = Bill(TARGET, None)


@pytest.mark.parametrize(
    ("bills", "reserved", "costs"),
    [
        ([], 100, ()),
        ([NOTHING], 100, (0,)),
        # What an upstream counted is owed exactly, also beyond what was set aside.
        ([counted(70)], 100, (70,)),
        ([counted(170)], 100, (170,)),
        ([counted(170)], 0, (170,)),
        # An estimate is not: it takes nobody above that.
        ([estimated(100)], 100, (100,)),
        ([estimated(101)], 100, (100,)),
        ([estimated(1)], 0, (0,)),
        # Exact ones come first, wherever they stand; estimates share the rest in their order.
        ([estimated(90), counted(30)], 100, (70, 30)),
        ([counted(30), estimated(90)], 100, (30, 70)),
        ([estimated(60), estimated(60)], 100, (60, 40)),
        ([estimated(20), NOTHING, counted(30), estimated(90)], 100, (20, 0, 30, 50)),
        ([estimated(70), estimated(70), estimated(70)], 100, (70, 30, 0)),
        # Nothing is left for estimates where exact ones took more than all; none becomes negative.
        ([estimated(5), counted(170), estimated(5)], 100, (0, 170, 0)),
    ],
)
def test_estimates_share_what_exact_bills_leave(
    bills: list[Bill], reserved: int, costs: tuple[int, ...]
) -> None:
    assert charged(bills, reserved) == costs


def test_the_price_of_a_batch_is_paid_where_it_is_one() -> None:
    whole = counted(70)
    assert charged([whole, structs.replace(whole, is_batch=True)], 100) == (70, 35)


@pytest.mark.parametrize(
    ("asked", "told", "percent"),
    [
        ({}, Usage(100, estimated=True), 100),
        ({"service_tier": "priority"}, Usage(100, estimated=True), 200),
        ({"service_tier": "fast"}, Usage(100, estimated=True), 200),
        # It may not have been served: what is cheaper has to be told.
        ({"service_tier": "flex"}, Usage(100, estimated=True), 100),
        ({"service_tier": "scale"}, Usage(100, estimated=True), 100),
        ({"service_tier": 7, "inference_geo": []}, Usage(100, estimated=True), 100),
        ({"service_tier": "priority"}, Usage(100, estimated=True, service_tier="default"), 100),
        ({"service_tier": "priority"}, Usage(100), 100),
        ({"inference_geo": "us"}, Usage(100, estimated=True), 110),
        ({"inference_geo": "global"}, Usage(100, estimated=True), 100),
        ({"inference_geo": "us"}, Usage(100, estimated=True, inference_geo="other"), 110),
        ({"inference_geo": "us", "service_tier": "priority"}, Usage(100, estimated=True), 220),
    ],
)
def test_what_nobody_counted_is_estimated_as_dear_as_it_was_asked_for(
    asked: dict[str, object], told: Usage, percent: int
) -> None:
    price = structs.replace(TARGET.price, priority_percent=200, flex_percent=50, us_percent=110)
    bill = as_asked(Bill(structs.replace(TARGET, price=price), told), asked)
    assert charged([bill], 10_000) == (percent,)
    assert charged([bill], 90) == ((90,) if told.estimated else (percent,))
    assert as_asked(NOTHING, asked) == NOTHING


def test_what_is_paid_as_a_batch_is_in_no_other_tier() -> None:
    price = structs.replace(TARGET.price, priority_percent=200)
    target = structs.replace(TARGET, price=price)
    batch = Bill(target, Usage(100, estimated=True), is_batch=True)
    assert as_asked(batch, {"service_tier": "priority"}) == batch
