"""Training the tagger: labelled text that is right, gradients that are right, runs that repeat."""

import gzip
import hashlib
import json
import random
import re
from pathlib import Path

import msgspec
import numpy as np

from classifiers.pii.names import tagger
from classifiers.pii.training.fill import Filler, label_of
from classifiers.pii.training.machines import Machines, varied
from classifiers.pii.training.network import Batch, Mean, Trainer, fresh_weights
from classifiers.pii.training.train_tagger import CARD_FILE, LOWER_THRESHOLDS, Recipe, train
from classifiers.pii.training.words import (
    CODE_FILE,
    DIRECTORY,
    TEMPLATE_FILES,
    WORD_FILES,
    load_code,
    load_templates,
    load_words,
)


def pools() -> dict[str, list[str]]:
    words = load_words()
    return words | {"first": words["eu_first"], "surname": words["eu_last"]}


def test_every_template_is_filled_and_its_labels_stand_where_they_say() -> None:
    fill = Filler(pools())
    rng = random.Random(1)
    for template in load_templates():
        sample = fill(template, rng)
        assert "{" not in sample.text.replace('{"', "").replace("{ ", "") or "{" in template
        reached = 0
        for span in sample.spans:
            assert reached <= span.start < span.end <= len(sample.text)
            assert sample.text[span.start : span.end] == sample.text[span.start : span.end].strip()
            reached = span.end


def test_names_are_labelled_in_every_form() -> None:
    slots = ("person", "person_lower", "hi_person", "in_first", "last1", "formal", "person_de")
    posts = ("famous_any", "first_any", "person_ru_gen", "patronymic_ru")
    assert {label_of(slot) for slot in (*slots, *posts)} == {"PERSON"}
    assert (label_of("ru_place"), label_of("en_body")) == ("LOCATION", "ORGANIZATION")
    assert not label_of("hi_words") + label_of("handle") + label_of("nonperson")
    assert label_of("de_address") == "ADDRESS"
    assert label_of("thing") == ""


def test_what_machines_write_names_nobody_and_every_form_of_it_is_filled() -> None:
    makers = Machines(pools()).makers()
    rng = random.Random(3)
    assert not [slot for slot in makers if label_of(slot)]
    for slot, maker in makers.items():
        values = [maker(rng) for _ in range(60)]
        assert all(values)
        left = [value for value in values if "{" in re.sub(r"\$\{[A-Z0-9_]+\}", "", value)]
        assert slot == "brace" or not left


def test_code_is_taught_with_other_words_in_the_same_places() -> None:
    words = ["buffer", "cache", "queue", "worker"]
    text = "worker.cache = Worker(queue)\nWORKER: queue  # Nobody is named here."
    seen = {varied(text, words, random.Random(seed)) for seed in range(20)}
    assert len(seen) > 5
    for other in seen:
        first = other.partition(".")[0]
        assert other.count("\n") == 1
        assert other.endswith("# Nobody is named here.")
        assert f"{first.capitalize()}(" in other
        assert f"\n{first.upper()}:" in other


def test_headings_and_remarks_of_code_are_templates_and_no_comments() -> None:
    templates = load_templates()
    assert any(template.startswith("# ") for template in templates)
    assert not any(template.startswith("# ---") for template in templates)
    assert all("\n" in text for text in load_code())


def test_gradients_lower_the_loss_on_what_they_were_taken_from() -> None:
    rng = np.random.default_rng(1)
    weights = fresh_weights(rng, rows=40, width=8, tags=3)
    features = rng.integers(1, 40, (12, 4))
    words = rng.integers(0, 12, (3, 20))
    words[0, :12] = range(12)
    tags = words % 3
    tags[2, 10:] = -1
    trainer = Trainer(weights, rng, dropout=0.0)
    losses = [trainer.step(Batch(features, words, tags), 0.01) for _ in range(120)]
    assert losses[-1] < 0.1 * losses[0]
    assert not weights.table[0].any()


def shared_files(directory: Path) -> Path:
    person, place = {"start": 4, "end": 13, "label": "PERSON"}, {"start": 17, "end": 21}
    spans = [person, place | {"label": "LOCATION"}]
    texts = [
        ("presidio-research", "Ask Anna Berg in Oslo.", spans),
        ("neg-frr", "Nothing to see.", []),
        ("wikiann", "Not to be learned from", []),
    ]
    lines = [
        {"id": source, "text": text, "source": source, "lang": "en", "spans": marked}
        for source, text, marked in texts
    ]
    packed = gzip.compress("\n".join(map(json.dumps, lines)).encode(), mtime=0)
    (directory / "train.jsonl.gz").write_bytes(packed)
    (directory / "gazetteer_first.txt").write_text("Anna\nIngrid\nMohan\n", encoding="utf-8")
    (directory / "gazetteer_surname.txt").write_text("Berg\nHaugen\nIyer\n", encoding="utf-8")
    return directory


def test_the_same_data_and_recipe_give_the_same_artefact(tmp_path: Path) -> None:
    data = shared_files(tmp_path)
    recipe = Recipe(epochs=1, per_template=1, width=8, least_count=2)
    said: list[str] = []
    for name in ("one", "two"):
        train(data, tmp_path / name, recipe, said.append)
    first, second = ((tmp_path / n / tagger.MODEL_FILE).read_bytes() for n in ("one", "two"))
    assert first == second
    assert tagger.load(tmp_path / "one").version == tagger.load(tmp_path / "two").version
    card = json.loads((tmp_path / "one" / CARD_FILE).read_text(encoding="utf-8"))
    assert card["data"].keys() == {
        "train.jsonl.gz",
        "gazetteer_first.txt",
        "gazetteer_surname.txt",
    }
    assert "wikiann" not in card["sources"]
    assert any("epoch 1" in line for line in said)


def test_a_mean_of_weights_is_the_mean_of_what_was_added() -> None:
    weights = fresh_weights(np.random.default_rng(2), rows=9, width=4, tags=3)
    mean = Mean(weights)
    for add in (0.0, 1.0, 5.0):
        weights.table[3] = add
        weights.own[1][:] = 2 * add
        mean.add(weights)
    weights.table[3] = 9
    assert np.allclose(mean.value().table[3], 2)
    assert np.allclose(mean.value().own[1], 4)
    assert np.allclose(mean.value().layers[2][0], weights.layers[2][0])


def test_what_is_shipped_is_what_this_code_and_these_lists_train() -> None:
    card = json.loads((tagger.ARTEFACT_DIRECTORY / CARD_FILE).read_bytes())
    files = (*WORD_FILES, *TEMPLATE_FILES, CODE_FILE)
    written = {name: (DIRECTORY / name).read_bytes() for name in files}
    assert card["generator"] == {n: hashlib.sha256(d).hexdigest() for n, d in written.items()}
    assert card["recipe"] == json.loads(msgspec.json.encode(Recipe()))
    assert card["thresholds"] == LOWER_THRESHOLDS
    assert "wikiann" not in card["sources"]
