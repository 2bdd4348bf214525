"""Both stages together: names and addresses beside identifiers, and who wins where they meet."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.pii.findings import Finding
from classifiers.pii.labels import LABELS, SOFT
from classifiers.pii.names import tagger
from classifiers.pii.names.everyday import named_part
from classifiers.pii.names.follow_up import followed, lines_of
from classifiers.pii.names.tokens import split, words_of
from classifiers.pii.scanner import Scanner, load, merged
from classifiers.units import Unit
from classifiers.verdicts import judge
from tests.classifiers import samples


SCANNER = load()
HINDI_NAME = "\u0930\u093e\u0939\u0941\u0932 \u0936\u0930\u094d\u092e\u093e"
HINDI = f"\u092e\u0947\u0930\u093e \u0928\u093e\u092e {HINDI_NAME} \u0939\u0948\u0964"
LEEDS = "48 Orchard Lane, Leeds LS6 3AB"
COLOGNE = "Lindenstra\u00dfe 14, 50674 K\u00f6ln"


def labels(text: str) -> dict[str, str]:
    """Label → text of its first finding."""
    return {f.label: text[f.start : f.end] for f in reversed(SCANNER.scan(text).findings)}


@pytest.mark.parametrize(
    ("text", "label", "value"),
    [
        ("My name is Rohan Deshpande and I need help.", "PERSON", "Rohan Deshpande"),
        ("Please forward this to Ingrid Halvorsen today.", "PERSON", "Ingrid Halvorsen"),
        ('{"full_name": "Chiara Marchetti", "age": 31}', "PERSON", "Chiara Marchetti"),
        ("Sehr geehrte Frau Hoffmann, anbei der Vertrag.", "PERSON", "Hoffmann"),
        (HINDI, "PERSON", HINDI_NAME),
        (f"Ship it to {LEEDS} please.", "ADDRESS", LEEDS),
        (f"Ich wohne in der {COLOGNE}.", "ADDRESS", COLOGNE),
        ("login as mkowalski84 and run the job", "USERNAME", "mkowalski84"),
    ],
)  # fmt: skip
def test_names_addresses_and_usernames_are_found(text: str, label: str, value: str) -> None:
    assert labels(text).get(label) == value


@pytest.mark.parametrize(
    "text",
    [
        "Explain Newton's method and Bayes' theorem with a small example each.",
        "Jenkins pipeline fails at the Maven stage, how do I debug it?",
        "def total(items):\n    return sum(item.price for item in items)",
        "Summarise the causes of the 2008 financial crisis in five bullets.",
        "SELECT name, city FROM users WHERE status = 'Active' ORDER BY name",
    ],
)
def test_texts_about_nobody_have_no_names(text: str) -> None:
    assert not labels(text).keys() & {"PERSON", "ADDRESS", "USERNAME"}


def test_a_name_is_found_wherever_it_stands_again() -> None:
    text = "This is Priya Raman. Best, Raman. Ramanathan Street and raman spectra stay."
    again = text.index("Raman.", 20)
    name = Finding(8, 19, "PERSON", 0.9, "tagger")
    town = Finding(again, again + 5, "LOCATION", 0.5, "tagger")
    assert [(f.start, f.end, f.label) for f in followed(text, [name, town])] == [
        (8, 19, "PERSON"),
        (again, again + 5, "PERSON"),
    ]


def test_a_part_of_a_word_is_nobodys_name_in_indian_scripts_either() -> None:
    name = HINDI_NAME.split(maxsplit=1)[0]
    text = f"{name} \u0914\u0930 {name}\u0940 \u0914\u0930 {name}"
    found = followed(text, [Finding(0, len(name), "PERSON", 0.9, "tagger")])
    assert [text[f.start : f.end + 1] for f in found] == [f"{name} ", name]


@pytest.mark.parametrize(
    ("behind", "code"),
    [
        (" 8001 is closed", "8001"),
        (", 114 55.", "114 55"),
        (" 3610-114 in", "3610-114"),
        (" LS6 3AB\n", "LS6 3AB"),
        (" 1998 was warm", ""),
        (" 15:30", ""),
        (" 4500%", ""),
        (" 12345678", ""),
    ],
)
def test_the_code_behind_a_town_belongs_to_an_address(behind: str, code: str) -> None:
    town = Finding(3, 10, "LOCATION", 0.9, "tagger")
    text = f"In Altdorf{behind}"
    addresses = [f for f in followed(text, [town]) if f.label == "ADDRESS"]
    assert [text[f.start : f.end] for f in addresses] == ([code] if code else [])


@pytest.mark.parametrize(
    ("text", "supposed", "left"),
    [
        ("Die Wahl wurde von der Partei entschieden.", "wurde von der", None),
        ("De wedstrijd in Tilburg is laat.", "De wedstrijd", None),
        ("Toen kwam Els de Wit echter.", "kwam Els de Wit echter", "Els de Wit"),
        ("Beste van Dijk, tot morgen.", "van Dijk", "van Dijk"),
        ("The Halden Orchestra plays.", "Orchestra", None),
        ("Meet Sofia Marchetti there.", "Sofia Marchetti", "Sofia Marchetti"),
        ("Wir fragen Frau Neue morgen.", "Neue", "Neue"),
        ("12.", "12", "12"),
        ("Lundi : revue de sprint.", "Lundi", None),
        ("El tren tarda dos horas y media.", "dos horas", None),
        ("Grazie. Gentili clienti, buongiorno.", "Gentili", None),
        ("When is a request hedged?", "hedged", None),
        ("Merci, Lucie Perrin.", "Merci, Lucie Perrin", "Lucie Perrin"),
    ],
)
def test_everyday_words_of_other_languages_are_nobody(
    text: str, supposed: str, left: str | None
) -> None:
    start = text.index(supposed)
    part = named_part(text, start, start + len(supposed))
    assert (part and text[slice(*part)]) == left


def test_a_name_is_found_behind_invisible_characters_and_entities() -> None:
    for name in ("Ro\u200bhan Desh\u00adpande", "Rohan&#32;Deshpande", "Rohan%20Deshpande"):
        text = f"My name is {name} and I need help."
        assert labels(text).get("PERSON") == name


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300))
def test_any_text_gives_ordered_disjoint_described_findings(text: str) -> None:
    reached = 0
    for finding in SCANNER.scan(text).findings:
        assert reached <= finding.start < finding.end <= len(text)
        assert finding.label in LABELS
        reached = finding.end


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_an_identifier_keeps_its_place_and_label_beside_names(seed: int) -> None:
    rng = random.Random(seed)
    card = samples.card(rng)
    text = f"Asha Iyer of 12 Hill Road, Pune 411001 paid with {card}, says Mohan Rao."
    found = labels(text)
    assert found["CREDIT_CARD"] == card
    assert found["PERSON"] == "Asha Iyer"


def test_an_address_swallows_what_is_only_its_number_and_yields_to_what_is_proved() -> None:
    address = Finding(10, 50, "ADDRESS", 0.9, "tagger")
    weak = Finding(12, 20, "PHONE", 0.55, "number")
    proved = Finding(30, 46, "CREDIT_CARD", 0.95, "number")
    assert merged([weak], [address]) == [address]
    assert merged([proved], [address]) == [Finding(10, 30, "ADDRESS", 0.9, "tagger"), proved]


@given(st.integers(0, 2**32), st.sampled_from(("It is {}.", "The customer is {}.", "{}", "Nr. {}")))
def test_what_the_tagger_guesses_makes_no_identity_number_less(seed: int, sentence: str) -> None:
    number = samples.aadhaar(random.Random(seed))
    assert labels(sentence.format(number))["IN_AADHAAR"] == number


def test_a_number_that_fills_an_address_or_is_longer_than_a_code_stays_what_it_is() -> None:
    address = Finding(10, 50, "ADDRESS", 0.9, "tagger")
    number = Finding(12, 24, "NATIONAL_ID", 0.6, "number")
    assert number in merged([number], [address])
    code = Finding(10, 19, "US_SSN", 0.6, "number")
    assert merged([code], [Finding(10, 19, "ADDRESS", 0.9, "tagger")]) == [code]


@pytest.mark.parametrize(
    "text", ["It is 42.", "It is 1234567.", "It is 12 o'clock", "Population: 8336817"]
)
def test_a_number_alone_is_nobodys_address(text: str) -> None:
    assert "ADDRESS" not in labels(text)


@pytest.mark.parametrize(
    "text", ["What is a sovereign route?", "? What is a sovereign route?", "What is S0?"]
)
def test_a_kind_of_road_and_a_grade_are_nobodys_address(text: str) -> None:
    assert "ADDRESS" not in labels(text)


@pytest.mark.parametrize(
    "text",
    [
        "Le journal est un fichier tournant de 50 Mo.",
        "El paquete llegará en un plazo de 48 a 72 horas.",
        "Palette 3, poids brut 482 kg, départ demain.",
        "El almacén ha recibido 22 palés de la fábrica.",
        "Der Betrag ist innerhalb von 14 Tagen fällig.",
        "| Poste | Budget |\n|---|---|\n| Matériel | 45 000 € |",
    ],
)
def test_how_much_there_is_of_something_is_nobodys_address(text: str) -> None:
    assert not labels(text).keys() & {"ADDRESS", "DOB"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Merci de livrer au 14 rue des Tanneurs, 69003 Lyon.", "14 rue des Tanneurs, 69003 Lyon"),
        ("hola, vivo en la calle alcalá 215, madrid", "calle alcalá 215"),
        ("He lives at Ivy Cottage, Little Haddon.", "Ivy Cottage, Little Haddon"),
    ],
)
def test_an_address_is_found_with_its_kind_of_street_and_where_somebody_lives(
    text: str, value: str
) -> None:
    assert value in labels(text).get("ADDRESS", "") or labels(text).get("ADDRESS", "?") in value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("El gobierno obliga a reducir el riego en la cuenca.", None),
        ("Il piano di rilascio è stato approvato dalla direzione.", None),
        ("Bere un litro e mezzo di acqua al giorno è consigliato.", None),
        ("Hola, soy maria lopez y quiero cambiar mi pedido.", "maria lopez"),
        ("can you call john smith about the invoice", "john smith"),
    ],
)
def test_words_in_small_letters_name_somebody_in_english_or_where_somebody_is_introduced(
    text: str, name: str | None
) -> None:
    assert labels(text).get("PERSON") == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("تمت الموافقة على ميزانية الربع الثالث وتأجيل مناقشة العقود.", None),
        ("取得日の五営業日前までにシステムから行ってください。", None),
        ("الموظفة فاطمة الزهراني مولودة في 12/05/1990.", "فاطمة الزهراني"),
        ("出席者：鈴木一郎", "鈴木一郎"),
    ],
)
def test_scripts_that_were_never_learned_need_a_word_for_a_name(
    text: str, name: str | None
) -> None:
    assert labels(text).get("PERSON") == name


def test_a_table_of_days_in_other_scripts_has_nobodys_birthday_and_a_birth_has() -> None:
    assert not labels("日付,店舗,数量,金額\n2024-06-01,札幌,32,48000\n2024-06-02,福岡,27,40500")
    assert "DOB" in labels("الموظفة فاطمة الزهراني مولودة في 12/05/1990.")


def test_a_changed_artefact_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "artefact"
    shutil.copytree(tagger.ARTEFACT_DIRECTORY, directory)
    tagger.load(directory)
    model = directory / tagger.MODEL_FILE
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with pytest.raises(tagger.ArtefactError):
        tagger.load(directory)


def test_a_long_text_is_tagged_like_its_parts() -> None:
    sentence = "The report is late. Please ask Ingrid Halvorsen about the budget of the team. "
    text = sentence * 120
    names = [f for f in SCANNER.scan(text).findings if f.label == "PERSON"]
    assert {text[f.start : f.end] for f in names} == {"Ingrid Halvorsen"}
    assert len(names) == 120


@pytest.mark.parametrize(
    ("text", "label", "found"),
    [
        ("See https://kunde.de/a?b=1. Then call.", "URL", "https://kunde.de/a?b=1"),
        ("Due on 12 March 2024, at noon.", "DATE_TIME", "12 March 2024"),
        ("Logged 2024-03-12 10:15:00 by cron.", "DATE_TIME", "2024-03-12 10:15:00"),
        ("The patient is a 57-year-old carpenter.", "AGE", "57"),
        ("She just turned 41.", "AGE", "41"),
        ("Ask Dr. Berg about it.", "TITLE", "Dr."),
        ("They serve good Norwegian food.", "NRP", "Norwegian"),
    ],
)
def test_soft_labels_are_found_where_they_are_asked_for(text: str, label: str, found: str) -> None:
    soft = Scanner(None, soft=True).scan(text).findings
    assert found in [text[f.start : f.end] for f in soft if f.label == label]
    assert all(f.label in LABELS for f in soft)
    assert label not in {f.label for f in SCANNER.scan(text).findings}


def test_soft_labels_give_way_to_what_matters() -> None:
    text = "Born on 12 March 1987, card 4111 1111 1111 1111 expires in 2027."
    plain, soft = SCANNER.scan(text).findings, Scanner(None, soft=True).scan(text).findings
    hard = [f for f in plain if f.label in {"DOB", "CREDIT_CARD"}]
    assert set(hard) <= set(soft)
    assert [text[f.start : f.end] for f in soft if f.label == "DATE_TIME"] == ["2027"]


def test_all_labels_of_the_shared_data_have_a_data_class() -> None:
    named = {"AGE", "DATE_TIME", "NRP", "TITLE", "URL", "LOCATION", "ORGANIZATION"}
    assert named == set(SOFT)
    assert len(LABELS) >= 43


def test_time_that_runs_out_leaves_what_patterns_found_and_says_so() -> None:
    text = "Asha Iyer paid with 4111 1111 1111 1111 yesterday."
    late = SCANNER.scan(text, lambda: True)
    assert (late.complete, late.late) == (False, True)
    assert [f.label for f in late.findings] == ["CREDIT_CARD"]
    verdict = judge(Unit(text), SCANNER, lambda: True)
    assert verdict.reasons == ("deadline",)
    asked: list[int] = []
    long = text * 400

    def second_time() -> bool:
        asked.append(1)
        return len(asked) > 2

    verdict = judge(Unit(long), SCANNER, second_time)
    assert verdict.reasons == ("deadline",)
    assert len(asked) == 3


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_splitting_finds_the_words_where_they_stand(text: str) -> None:
    words, starts, ends = split(text)
    assert list(zip(starts, ends, strict=True)) == words_of(text)
    assert words == [text[a:b] for a, b in words_of(text)]


def test_each_line_of_an_address_is_a_place_and_a_town_goes_with_its_street() -> None:
    text = "to: 12 Mill Lane, Flat 3 \n   Ashby\n\n   LE65 1AB\nThanks"
    found = lines_of(text, 4, text.index("\nThanks"))
    assert [text[a:b] for a, b in found] == ["12 Mill Lane, Flat 3 \n   Ashby", "LE65 1AB"]
    assert lines_of("Ashby", 0, 5) == ((0, 5),)


def test_the_lines_of_an_address_cover_all_that_is_written_in_it() -> None:
    text = f"Please deliver to:\n{LEEDS.replace(', ', chr(10))}\nThank you."
    found = [f for f in SCANNER.scan(text).findings if f.label == "ADDRESS"]
    left = "".join(c for at, c in enumerate(text) if not any(f.start <= at < f.end for f in found))
    assert not any(part in left for part in LEEDS.replace(",", "").split()[:3])


def test_long_rows_of_names_come_apart_and_long_names_do_not() -> None:
    text = "Doubles: Gerrit Visser Marcin Kowalski and Maria Teresa de la Cruz Ortega"
    found = [text[f.start : f.end] for f in SCANNER.scan(text).findings]
    assert found == ["Gerrit Visser", "Marcin Kowalski", "Maria Teresa de la Cruz Ortega"]


def test_one_letter_or_mark_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Who wrote it? (A) Anna Berg (B) nobody."
    places = [(14, 17, "PERSON"), (18, 27, "PERSON"), (28, 31, "ADDRESS"), (38, 39, "ADDRESS")]
    tagged = [tagger.Tagged(a, b, label, 0.9) for a, b, label in places]
    monkeypatch.setattr(tagger.Tagger, "find", lambda *_: tagged)
    assert [text[f.start : f.end] for f in SCANNER.scan(text).findings] == ["Anna Berg"]
