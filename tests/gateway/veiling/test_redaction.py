"""Pseudonyms: nobody's, always the same, gone from the request and back in the answer."""

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from classifiers.pii.detect import find
from classifiers.pii.numerals import validators
from gateway.veiling.forms import HELD_BACK_MAX, Words, in_json, joins
from gateway.veiling.redaction import (
    Pseudonyms,
    Restorer,
    conversation_key,
    pseudonyms,
    replaced,
    still_said,
)
from tests.classifiers import samples


TENANT = b"t" * 32
KEY = conversation_key(TENANT, "hello")
HINDI = "\u0930\u093e\u0939\u0941\u0932 \u0936\u0930\u094d\u092e\u093e"


def chosen(*found: tuple[str, str], text: str = "") -> Pseudonyms:
    return pseudonyms(KEY, found, [text])


def values(rng: random.Random) -> list[tuple[str, str]]:
    return [
        ("PERSON", "Ingrid Halvorsen"),
        ("PERSON", HINDI),
        ("EMAIL", "ingrid@corp-mail.no"),
        ("PHONE", "+47 22 85 50 50"),
        ("ADDRESS", 'Storgata 14 "B", 0184 Oslo'),
        ("CREDIT_CARD", samples.grouped(samples.card(rng), " ")),
        ("IN_AADHAAR", samples.aadhaar(rng)),
        ("IBAN", samples.iban(rng)),
        ("US_SSN", samples.ssn(rng)),
        ("IP_ADDRESS", "160.219.105.202"),
        ("USERNAME", "ihalvorsen84"),
        ("MRN", "939-95-169"),
    ]


@pytest.mark.parametrize("label", ["PERSON", "USERNAME", "PHONE"])
def test_no_two_values_have_one_surrogate_however_few_there_are(label: str) -> None:
    of_label = {"PERSON": "Ann{}", "USERNAME": "ann{}", "PHONE": "22 85 5{}"}[label]
    letters = "0123456789" if label == "PHONE" else "abcdefghijklmnopqrstuvwxyz"
    found = [(label, of_label.format(one + other)) for one in letters for other in letters]
    known = chosen(*found)
    assert len(set(known.replacements.values())) == len(known.values) == len(found)
    for _, value in found:
        assert known.values[known.replacements[value]] == value


@given(st.integers(0, 2**32))
def test_surrogates_keep_the_layout_and_can_be_nobodys(seed: int) -> None:
    rng = random.Random(seed)
    names = chosen(*values(rng)).replacements
    for label, value in values(random.Random(seed)):
        other = names[value]
        digits = "".join(filter(str.isdigit, other))
        assert other != value
        if label == "CREDIT_CARD":
            assert not validators.luhn(digits)
        elif label == "IN_AADHAAR":
            assert not validators.aadhaar(digits)
        elif label == "US_SSN":
            assert not validators.us_ssn(digits)
        elif label == "IBAN":
            assert not validators.iban("".join(filter(str.isalnum, other)))
        elif label == "IP_ADDRESS":
            assert not validators.public_ip(other)
        if label in {"CREDIT_CARD", "IN_AADHAAR", "US_SSN", "PHONE", "MRN", "IBAN"}:
            assert [c.isdigit() for c in other] == [c.isdigit() for c in value]


def test_what_a_surrogate_stands_for_is_not_found_again() -> None:
    rng = random.Random(3)
    for label, value in values(rng):
        found = {f.label for f in find(f"see {chosen((label, value)).replacements[value]} there")}
        assert label not in found - {"PHONE", "PERSON", "ADDRESS"}


def test_the_same_conversation_has_the_same_surrogates_and_another_has_others() -> None:
    found = values(random.Random(7))
    again = pseudonyms(conversation_key(TENANT, "hello"), reversed(found), [])
    assert again.replacements == chosen(*found).replacements
    for key in (conversation_key(TENANT, "hello!"), conversation_key(b"u" * 32, "hello")):
        others = pseudonyms(key, found, []).replacements
        assert sum(others[v] == again.replacements[v] for _, v in found) <= 1


def test_a_surrogate_that_the_text_already_says_is_not_used() -> None:
    first = chosen(("PERSON", "Ingrid Halvorsen")).replacements["Ingrid Halvorsen"]
    second = chosen(("PERSON", "Ingrid Halvorsen"), text=f"ask {first}")
    assert second.replacements["Ingrid Halvorsen"] != first


def test_secrets_are_blackened_and_never_come_back() -> None:
    names = chosen(("SECRET", "s3cr3t-value-123"), ("PERSON", "Ingrid Halvorsen"))
    assert names.replacements["s3cr3t-value-123"] == "[REDACTED:SECRET]"
    assert names.restored("[REDACTED:SECRET]") == "[REDACTED:SECRET]"
    blackened = pseudonyms(KEY, [("PERSON", "Ingrid Halvorsen")], [], one_way=True)
    assert blackened.values == {}
    assert replaced("ask Ingrid Halvorsen", blackened) == "ask [REDACTED:PERSON]"


def as_written(text: str) -> str:
    """JSON within JSON, each written as Python does."""
    return json.dumps({"deep": json.dumps(json.loads(json.loads(text)["deep"]))})


def tools_of(document: object) -> list[str]:
    assert isinstance(document, dict)
    return [each["arguments"] for each in document["tools"]]


@given(st.integers(0, 2**32))
def test_values_are_replaced_wherever_they_stand_and_come_back(seed: int) -> None:
    rng = random.Random(seed)
    found = values(rng)
    names = chosen(*found)
    document = {
        "model": "auto",
        "messages": [{"role": "user", "content": f"{label}: {value}."} for label, value in found],
        "tools": [{"arguments": json.dumps({"deep": json.dumps({v: [v]})})} for _, v in found],
        "metadata": {value: {"list": [value, 1, None, True]} for _, value in found},
    }
    veiled = replaced(document, names)
    said = json.dumps(veiled, ensure_ascii=False)
    assert not any(value in said for _, value in found)
    assert not still_said(veiled, names)
    assert still_said(document, names)
    for _, value in found:
        other = names.replacements[value]
        assert json.dumps({"deep": json.dumps({other: [other]})}) in map(
            as_written, tools_of(veiled)
        )
    whole = names.restored("\n".join(names.values))
    assert whole == "\n".join(names.values.values())


@pytest.mark.parametrize("wrapped", [lambda node: [node], lambda node: {"a": node}])
def test_what_is_nested_too_deeply_to_be_inspected_is_not_sent(
    wrapped: Callable[[object], object],
) -> None:
    names = chosen(("PERSON", "Ingrid Halvorsen"))
    node: object = "Ingrid Halvorsen"
    for _ in range(65):
        node = wrapped(node)
    assert "Halvorsen" not in json.dumps(replaced(node, names))
    with pytest.raises(RecursionError):
        replaced(wrapped(node), names)


def test_a_number_is_replaced_by_a_number() -> None:
    card = samples.card(random.Random(1))
    names = chosen(("CREDIT_CARD", card))
    veiled = replaced({"card": int(card), "count": 3, "ratio": 0.5}, names)
    assert isinstance(veiled, dict)
    assert str(veiled["card"]) == names.replacements[card]
    assert (veiled["count"], veiled["ratio"]) == (3, 0.5)


def test_a_value_that_is_also_a_word_of_the_wire_breaks_no_request() -> None:
    names = chosen(("USERNAME", "tools"))
    document = {"tools": [{"name": "ask tools now"}], "note": "tools"}
    assert replaced(document, names) == {
        "tools": [{"name": f"ask {names.replacements['tools']} now"}],
        "note": "tools",
    }
    assert not still_said({"tools": []}, names)


def test_part_of_a_surrogate_that_the_text_already_says_stands_for_nobody() -> None:
    first, last = chosen(("PERSON", "Ingrid Halvorsen")).replacements["Ingrid Halvorsen"].split()
    both = chosen(("PERSON", "Ingrid Halvorsen"), text="ask anybody").values
    assert (both[first], both[last]) == ("Ingrid", "Halvorsen")
    names = chosen(("PERSON", "Ingrid Halvorsen"), text=f"ask old {last}")
    assert names.restored(f"old {last} and {first}") == f"old {last} and Ingrid"


FIRST = "Ingrid Sören Maria Peter Sofia Lukas Emma Jonas Paula Viktor Clara Anton Greta Oskar"
LAST = "Halvorsen Schmidt Berggren Novak Rossi Keller Fischer Moreau Larsson Weber Ricci Kovacs"
PEOPLE = [" ".join(each) for each in zip(FIRST.split(), LAST.split(), strict=False)]
PEOPLE += ["ANNA BERGMANN", "Johan van Dijkstra", "Mariechen", "Wolfeschlegelsteinhausen"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(PEOPLE), unique=True))
@example(PEOPLE)  # Among so many, surrogates have words in common.
def test_no_word_of_a_surrogate_comes_back_as_another_persons(people: list[str]) -> None:
    names = chosen(*(("PERSON", name) for name in people), text="Greet them.")
    forms = names.forms()

    def back(text: str) -> str:
        restorer = Restorer(forms)
        return restorer.feed(text) + restorer.flush()

    for name in people:
        surrogate = names.replacements[name]
        assert back(surrogate) == name
        for part, word in zip(name.split(), surrogate.split(), strict=True):
            for said in (str, str.upper, str.lower):
                assert back(said(word)) in {said(part), said(word)}
            if len(part) > 3:
                alone = replaced(f"Dear Ms {part},", names)
                assert part not in str(alone)
                assert back(str(alone)) == f"Dear Ms {part},"


def test_a_word_that_two_surrogates_have_is_the_only_one_that_does_not_come_back() -> None:
    names = chosen(*(("PERSON", name) for name in PEOPLE))
    words = [word for name in PEOPLE for word in names.replacements[name].split()]
    often = {word for word in words if words.count(word) > 1}
    assert often
    for name in PEOPLE[:12]:
        for part, word in zip(name.split(), names.replacements[name].split(), strict=True):
            assert names.restored(word) == (word if word in often else part)


def test_a_short_name_comes_back_and_so_does_each_of_a_family() -> None:
    family = ("Ingrid Halvorsen", "Eva Halvorsen")
    names = chosen(*(("PERSON", name) for name in family))
    words = [word for name in family for word in names.replacements[name].split()]
    assert len(set(words)) == 4
    assert [names.restored(word) for word in words] == ["Ingrid", "Halvorsen", "Eva", "Halvorsen"]
    assert replaced("Eva", names) == "Eva", "it may be any word"
    assert replaced("Ms Halvorsen", names) == f"Ms {words[1]}"


def test_a_secret_that_is_also_a_name_is_blackened() -> None:
    names = chosen(("PERSON", "Ingrid Halvorsen"), ("PASSWORD", "Halvorsen"))
    assert replaced("Ingrid Halvorsen: Halvorsen", names) == (
        f"{names.replacements['Ingrid Halvorsen']}: [REDACTED:PASSWORD]"
    )
    assert "Halvorsen" not in names.values.values()


def test_a_surrogate_inside_a_longer_word_is_left_alone_wherever_the_stream_is_cut() -> None:
    names = chosen(("PERSON", "Will"))
    (other,) = names.values
    text = f"un{other} {other}ful _{other} {other}. {other}"
    whole = names.restored(text)
    assert whole == f"un{other} {other}ful _Will Will. Will"
    for cut in range(len(text)):
        restorer = Restorer(names)
        pieces = (restorer.feed(text[:cut]), restorer.feed(text[cut:]), restorer.flush())
        assert "".join(pieces) == whole


def test_parts_of_words_are_left_alone() -> None:
    names = chosen(("PERSON", "Will"))
    assert replaced("Will goes willingly to Willow", names) == (
        f"{names.replacements['Will']} goes willingly to Willow"
    )


@example(1045581, [1])  # the end of an IBAN reads like the beginning of an address
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9), min_size=1))
def test_a_stream_cut_anywhere_is_restored_as_if_it_were_whole(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    names = chosen(*values(rng))
    words = [*names.values, "Dear", "and", "see", "12", "-", "\u0905"]
    text = " ".join(rng.choices(words, k=12))
    restorer = Restorer(names)
    pieces, at, turn = [], 0, 0
    while at < len(text):
        size = cuts[turn % len(cuts)]
        pieces.append(restorer.feed(text[at : at + size]))
        assert len(restorer._held) <= HELD_BACK_MAX
        at, turn = at + size, turn + 1
    pieces.append(restorer.flush())
    whole = Restorer(names)
    assert "".join(pieces) == whole.feed(text) + whole.flush()
    assert not any(surrogate in "".join(pieces) for surrogate in names.values if len(surrogate) > 6)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_tool_arguments_stay_json_with_the_values_in_them(ascii_only: bool) -> None:
    found = values(random.Random(9))
    names = chosen(*found)
    sent = {label: names.replacements[value] for label, value in found if value != found[1][1]}
    sent["HINDI"] = names.replacements[HINDI]
    text = json.dumps(sent, ensure_ascii=ascii_only)
    restorer = Restorer(names, in_json)
    got = "".join(map(restorer.feed, text)) + restorer.flush()
    back = json.loads(got)
    assert back["HINDI"] == HINDI
    assert back["ADDRESS"] == 'Storgata 14 "B", 0184 Oslo'
    assert back["EMAIL"] == "ingrid@corp-mail.no"


def in_capitals(text: str) -> str:
    """Escapes as .NET writes them."""
    return re.sub(r"\\u[0-9a-f]{4}", lambda code: "\\u" + code[0][2:].upper(), text)


@pytest.mark.parametrize(
    "program", [in_capitals, lambda text: text.replace("/", "\\/")], ids=["capitals", "slashes"]
)
def test_values_come_back_in_json_as_any_program_writes_it(program: Callable[[str], str]) -> None:
    found = [("PERSON", HINDI), ("DOB", "17/05/1984"), ("ADDRESS", "7/2 Rue de la Paix")]
    names = chosen(*found)
    tree = [names.replacements[value] for _, value in found]
    text = program(json.dumps(tree))
    assert text != json.dumps(tree)
    restorer = Restorer(names, in_json)
    got = "".join(map(restorer.feed, text)) + restorer.flush()
    assert json.loads(got) == [value for _, value in found]


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("PHONE", "+47 22 85 50 50 11"),
        ("CREDIT_CARD", samples.grouped(samples.card(random.Random(3)), " ")),
        ("US_SSN", "078-05-1120"),
    ],
)
@pytest.mark.parametrize("mark", [" ", "-", ".", "\u00a0", "\u202f", "\u2011", "\u2013"])
def test_groups_come_back_between_other_marks(label: str, value: str, mark: str) -> None:
    names = chosen((label, value))
    said = re.sub("[ -]", mark, names.replacements[value])
    assert names.restored(f"It is {said}, yes") == f"It is {re.sub('[ -]', mark, value)}, yes"


@pytest.mark.parametrize("mark", ["", " ", "\u00a0", "\u202f"])
def test_an_account_comes_back_in_the_groups_that_the_model_makes(mark: str) -> None:
    """In tool calls models write an IBAN in one piece, in letters in groups of four."""
    plain = "NO9386011117947"
    for value in (plain, samples.grouped(plain, " "), samples.grouped(plain, "-")):
        names = chosen(("IBAN", value))
        (sent,) = (re.sub("[ -]", "", each) for each in names.values)
        said, back = (samples.grouped(each, mark) for each in (sent, plain))
        assert names.restored(f"Pay to {said}.") == f"Pay to {back}."
        assert json.loads(names.restored(json.dumps({"iban": said}))) == {"iban": back}
        assert names.restored(sent.lower()) == plain.lower()


@pytest.mark.parametrize(
    "change",
    [
        lambda name: ".".join(name.lower().split()) + "@corp-mail.no",
        lambda name: "/in/" + "-".join(name.lower().split()),
        lambda name: "#" + "".join(name.split()),
        lambda name: "_".join(name.lower().split()) + ".pdf",
    ],
)
def test_a_name_comes_back_in_an_address_that_a_model_makes_of_it(
    change: Callable[[str], str],
) -> None:
    names = chosen(("PERSON", "Ingrid Halvorsen"))
    (sent,) = (each for each, value in names.values.items() if value == "Ingrid Halvorsen")
    assert names.restored(f"See {change(sent)} .") == f"See {change('Ingrid Halvorsen')} ."


def test_an_address_comes_back_in_a_link_and_at_the_beginning_of_a_sentence() -> None:
    mail, user = "ingrid+post@corp-mail.no", "ingrid_halvorsen84"
    names = chosen(("EMAIL", mail), ("USERNAME", user))
    sent, login = names.replacements[mail], names.replacements[user]
    link = f"https://crm.invalid/?to={sent.replace('@', '%40')}&x=1"
    assert names.restored(link) == "https://crm.invalid/?to=ingrid%2Bpost%40corp-mail.no&x=1"
    assert names.restored(f"{sent[0].upper()}{sent[1:]} it is.") == f"I{mail[1:]} it is."
    marked = login.replace("_", "\\_")
    assert names.restored(f"As {marked} here") == "As ingrid\\_halvorsen84 here"


@pytest.mark.parametrize("address", ["Storgata 14, 0184 Oslo", "Storgata 14 B, 0184 Oslo"])
@pytest.mark.parametrize("end", ["\n", "\u00a0"])
def test_what_is_written_over_two_lines_comes_back(end: str, address: str) -> None:
    names = chosen(("ADDRESS", address))
    sent, words = names.replacements[address].split(" "), address.split(" ")
    assert len(sent) == 4
    for at in range(1, 4):
        said, back = end.join(sent), end.join(words)
        if end == "\n":
            said = f"{' '.join(sent[:at])}\n{' '.join(sent[at:])}"
            alike = f"{' '.join(words[:at])}\n{' '.join(words[at:])}"
            back = alike if len(words) == 4 else address
        text = f"To: {said}\nNorway"
        restorer = Restorer(names)
        assert "".join(map(restorer.feed, text)) + restorer.flush() == f"To: {back}\nNorway"
        restorer = Restorer(names, in_json)
        got = "".join(map(restorer.feed, json.dumps({"to": said}))) + restorer.flush()
        assert json.loads(got) == {"to": back}


QUOTED = 'Robert "Bob" Smith'


@pytest.mark.parametrize(
    "frame",
    [
        '{"to": "%s"}',
        ' \n{\n "to": "%s"}',
        '[{"to": "%s"}]',
        '["%s", 2]',
        '```json\n{"to": "%s"}\n```',
    ],
)
def test_a_text_that_is_json_stays_json_in_one_piece_and_letter_by_letter(frame: str) -> None:
    names = chosen(("PERSON", QUOTED))
    text = frame.replace("%s", names.replacements[QUOTED])
    restorer = Restorer(names)
    got = "".join(map(restorer.feed, text)) + restorer.flush()
    assert got == names.restored(text) == frame.replace("%s", in_json(QUOTED))
    assert QUOTED in str(json.loads(got.strip("`json\n")))


@pytest.mark.parametrize("frame", ["[1] %s", "{%s} and", "[%s](https://example.invalid)", '"%s"'])
def test_a_text_that_only_begins_like_json_gets_no_marks(frame: str) -> None:
    names = chosen(("PERSON", QUOTED))
    text = frame.replace("%s", names.replacements[QUOTED])
    restorer = Restorer(names)
    got = "".join(map(restorer.feed, text)) + restorer.flush()
    assert got == names.restored(text) == frame.replace("%s", QUOTED)


def as_said(change: str, name: str) -> str:
    first, last = name.split()
    told = {
        "capitals": name.upper(),
        "small letters": name.lower(),
        "a part in capitals": f"MS {last.upper()}!",
        "whose": f"{name}s Konto, {first}s Haus, {name}'s car, {last.upper()}S END",
        "stressed": f"**{name}**, *{first}* __{last}__, _{name}_ and `{name}`",
        "tags": f"<b>{first}</b>\n<i>{last}</i>, <a href='#'>{name}</a>",
        "turned round": f'"{last}, {first}"',
        "joined": f"{first}_{last}-Konto",
    }
    return told[change]


@pytest.mark.parametrize(
    "change",
    [
        *("capitals", "small letters", "a part in capitals", "whose"),
        *("stressed", "tags", "turned round", "joined"),
    ],
)
def test_a_name_comes_back_as_the_model_writes_it(change: str) -> None:
    value = "Ingrid Halvorsen"
    names = chosen(("PERSON", value))
    text = as_said(change, names.replacements[value])
    restorer = Restorer(names)
    assert "".join(map(restorer.feed, text)) + restorer.flush() == as_said(change, value)
    assert names.restored(text) == as_said(change, value)


@pytest.mark.parametrize("mark", [" ", "-"])
def test_a_number_comes_back_in_the_groups_that_the_model_makes(mark: str) -> None:
    number, phone = samples.card(random.Random(3)), "+47 22-85 50 50 11"
    spaced = samples.grouped(number, mark)
    for value, other in ((number, spaced), (spaced, number)):
        names = chosen(("CREDIT_CARD", value))
        (surrogate,) = names.values
        digits = surrogate.replace(mark, "")
        said = digits if value == spaced else samples.grouped(digits, mark)
        text = f"Charge {said}, please."
        restorer = Restorer(names)
        assert "".join(map(restorer.feed, text)) + restorer.flush() == f"Charge {other}, please."
    names = chosen(("PHONE", phone))
    (surrogate,) = names.values
    plain = surrogate.replace(" ", "").replace("-", "")
    assert names.restored(f"tel:{plain}") == "tel:+472285505011"
    assert names.restored(f"1{plain[1:]}5") == f"1{plain[1:]}5"


def test_an_address_in_capitals_comes_back_and_what_nobody_was_given_stays() -> None:
    names = chosen(("EMAIL", "ingrid@corp-mail.no"), ("PERSON", "Hans Berg"))
    other = names.replacements["ingrid@corp-mail.no"]
    first, last = names.replacements["Hans Berg"].split()
    assert names.restored(f"{other.upper()} {first}s") == "INGRID@CORP-MAIL.NO Hans'"
    invented = f"{first}ina {last}er x{other} {first[:-1]} [PERSON:1] user_1b2c3d4f {last.lower()}"
    assert names.restored(invented) == invented


@pytest.mark.parametrize("said", [str.upper, str.lower, str.title])
def test_a_surrogate_that_the_text_says_in_another_case_is_not_used(
    said: Callable[[str], str],
) -> None:
    value = "Ingrid Halvorsen"
    first = chosen(("PERSON", value)).replacements[value]
    again = chosen(("PERSON", value), text=f"{said(first)} was here").replacements[value]
    assert again != first


@given(st.lists(st.text("ab1 _", max_size=4)), st.text("ab1 _\u3042", max_size=12))
def test_words_are_found_whole_and_the_longest_first(words: list[str], text: str) -> None:
    found = list(Words(words).places(text))
    assert all(text[a:b] == word and word in words for a, b, word in found)
    assert all(b <= c for (_, b, _), (c, _, _) in pairwise(found))
    for a, b, _ in found:
        assert not (a and joins(text[a - 1], text[a]))
        assert not joins(text[b : b + 1], text[b - 1])
        longer = [w for w in words if text.startswith(w, a) and len(w) > b - a]
        assert all(joins(text[a + len(w) : a + len(w) + 1], w[-1]) for w in longer)


def test_within_a_word_nothing_is_held_back() -> None:
    names = chosen(("PERSON", "Ingrid Halvorsen"))
    (name,) = (each for each in names.values if " " in each)
    restorer = Restorer(names)
    assert restorer.feed(f"x{name[0]}") == f"x{name[0]}"
    assert restorer.feed(f" {name[0]}") == " "


def test_nothing_is_held_back_without_a_reason() -> None:
    restorer = Restorer(chosen(("PERSON", "Ingrid Halvorsen")))
    assert restorer.feed("hello there, ") == "hello there, "
    assert Restorer(chosen()).feed("anything") == "anything"


def test_pseudonyms_show_no_values() -> None:
    assert "Ingrid" not in repr(chosen(("PERSON", "Ingrid Halvorsen")))
