"""Numbers of three groups are one, whatever marks, tags and ends of lines stand between."""

import random

import pytest

from classifiers.pii.detect import find
from tests.classifiers import samples


RANDOM = random.Random(41)
SSN = samples.ssn(RANDOM).split("-")
NHS = samples.nhs(RANDOM).replace(" ", "")
NHS_GROUPS = (NHS[:3], NHS[3:6], NHS[6:])
DASHED = (
    "{}-\n{}-{}", "**{}**-{}-{}", "{}<b>-{}-</b>{}", "*{}*-{}-{}", "_{}_-{}-{}", "`{}`-`{}`-`{}`",
    "~~{}~~-{}-{}", "{}\\-{}\\-{}", "[{}](#a)-{}-{}", "> {}-\n> {}-{}", "{}-{}-\r\n  {}",
    "<td>{}-</td><td>{}-</td><td>{}</td>", "{} -\n{} -\n{}",
    "{}-<span class='x'>{}</span>-{}", "{}\u200b-{}\u200d-{}",
)  # fmt: skip
APART = (
    "{}\n{}\n{}", "| {} | {} | {} |", "<td>{}</td><td>{}</td><td>{}</td>", "**{}** **{}** **{}**",
    )  # fmt: skip


@pytest.mark.parametrize("form", DASHED)
def test_an_ssn_with_dashes_needs_no_word(form: str) -> None:
    assert [f.label for f in find(f"it is {form.format(*SSN)}, as told")] == ["US_SSN"]


@pytest.mark.parametrize("form", APART)
def test_without_dashes_a_word_says_what_it_is(form: str) -> None:
    assert "US_SSN" in {f.label for f in find(f"SSN: {form.format(*SSN)}")}
    assert not find(f"counts: {form.format('123', '45', '6789')}")


@pytest.mark.parametrize("form", [*DASHED[:-1], *APART])
def test_an_nhs_number_has_a_word_and_a_check_digit(form: str) -> None:
    wrong = f"{NHS[6:9]}{(int(NHS[9]) + 1) % 10}"
    assert "UK_NHS" in {f.label for f in find(f"NHS number {form.format(*NHS_GROUPS)}")}
    assert "UK_NHS" not in {f.label for f in find(f"batch {form.format(*NHS_GROUPS)}")}
    assert "UK_NHS" not in {f.label for f in find(f"NHS {form.format(*NHS_GROUPS[:2], wrong)}")}


@pytest.mark.parametrize(
    "text",
    [
        "- 123\n- 45\n- 6789",
        "1. 123\n2. 45\n3. 6789",
        "| 123 | 45 | 6789 |\n| 321 | 54 | 9876 |",
        "see 123, 45 and 6789",
        "page 123\n45\n6789",
        "v1.123-\n45-6789",
        "000-\n45-6789",
        "**666**-45-6789",
        "*943*-*476*-5919",
    ],
)
def test_numbers_beside_each_other_are_nobodys(text: str) -> None:
    assert not [f for f in find(text) if f.label in {"US_SSN", "UK_NHS"}]
