"""The table of rules in docs/translation.md is the one that the tests make."""

from tests.conformance.contract import ROOT, RULES, files_by_rule, table


def test_every_rule_has_a_test_of_its_name() -> None:
    assert list(RULES) == list(range(1, 70))
    assert sorted(RULES.keys() - files_by_rule().keys()) == []


def test_the_table_in_the_documents_is_the_one_that_the_tests_make() -> None:
    text = ROOT.joinpath("docs", "translation.md").read_text(encoding="utf-8")

    assert table() in text, "print it with `python -m tests.conformance.contract`"
