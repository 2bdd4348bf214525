"""Cells carry the words of their columns, and every part of a table says what it is."""

import re

import pytest

from admin.cards import as_cards
from admin.screens import environment


HEAD = (
    '<table class="rows dense"><thead><tr><th>Time</th><th class="number">Tokens in · out</th>'
    '<th><a href="?sort=cost" aria-current="true">Cost <span aria-hidden="true">↓</span></a></th>'
    '<th>What a &lt;b&gt; &amp; a "name" say</th><th>Targets,<br>at</th><th></th>'
    "</tr></thead><tbody>"
)


def cells(table: str) -> list[tuple[str, str]]:
    """What is written to each cell beside its role, and what stands in it."""
    return re.findall(r'<td role="cell"([^>]*)>(.*?)</td>', as_cards(table), re.DOTALL)


def test_each_cell_carries_the_word_of_its_own_column() -> None:
    row = "<tr>" + "".join(f"<td>{number}</td>" for number in range(6)) + "</tr>"
    assert cells(f"{HEAD}{row}{row}</tbody></table>") == 2 * [
        ("", "0"),
        (' data-of="Tokens in · out"', "1"),
        (' data-of="Cost"', "2"),
        (' data-of="What a &lt;b&gt; &amp; a &quot;name&quot; say"', "3"),
        (' data-of="Targets, at"', "4"),
        ("", "5"),
    ]


def test_a_head_that_is_not_seen_is_no_word_on_a_card_either() -> None:
    head = '<th>Key</th><th><span class="visually-hidden">Deeds</span></th><th>Until</th>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>"
    found = cells(f"{table}<tr><td>a</td><td>b</td><td>c</td></tr></tbody></table>")
    assert found == [("", "a"), ("", "b"), (' data-of="Until"', "c")]


@pytest.mark.parametrize("blank", ["", "\n  ", "–", '<span class="soft">–</span>'])
def test_what_says_nothing_is_marked_so_and_what_the_card_is_about_never(blank: str) -> None:
    row = f"<tr><td>{blank}</td><td>{blank}</td><td> – of 3</td></tr>"
    first, second, third = cells(f"{HEAD}{row}</tbody></table>")
    assert (first[0], second[0], third[0]) == ("", " data-blank", ' data-of="Cost"')


def test_a_cell_over_several_columns_has_the_word_of_none_and_moves_no_other() -> None:
    row = '<tr><td>a</td><td colspan="2">b</td><td>c</td><td colspan="1">d</td></tr>'
    assert cells(f"{HEAD}{row}</tbody></table>") == [
        ("", "a"),
        (' colspan="2"', "b"),
        (' data-of="What a &lt;b&gt; &amp; a &quot;name&quot; say"', "c"),
        (' colspan="1" data-of="Targets, at"', "d"),
    ]


def test_every_part_says_what_it_is_and_stays_what_it_was() -> None:
    table = f'{HEAD}<tr id="r"><td class="cut" title="x">a</td></tr></tbody></table>'
    made = as_cards(table)
    assert re.sub(r' role="\w+"| cards', "", made) == table
    assert 'class="rows dense cards"' in made
    parts = [("table", "table"), ("thead", "rowgroup"), ("tbody", "rowgroup"), ("tr", "row")]
    for name, role in (*parts, ("th", "columnheader"), ("td", "cell")):
        assert f'<{name} role="{role}"' in made
        assert not re.search(rf"<{name}(?! role)\b", made)


def test_what_somebody_wrote_makes_no_part_of_a_table() -> None:
    page = (
        "{% filter cards %}" + HEAD + "<tr><td>{{ text }}</td></tr></tbody></table>{% endfilter %}"
    )
    made = environment().from_string(page).render(text='</td><td class="x">–</td>')
    assert made.count("<td") == 1
    assert "&lt;td class=" in made
