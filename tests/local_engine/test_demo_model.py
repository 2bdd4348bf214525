"""The shipped demo model: small, verified, and right about its corpus."""

from pathlib import Path

from tokenizers import Tokenizer

from local_engine.demo_model.artefact import TrainingReport, write_artefact
from local_engine.demo_model.chat_format import encode_conversation
from local_engine.demo_model.conversations import FACTS_FIRST, Message
from local_engine.demo_model.corpus import read_corpus
from local_engine.demo_model.evaluation import exact_match_rates
from local_engine.demo_model.tokenizer_training import train_tokenizer
from local_engine.demo_model.train import Phase, new_decoder, train_phase
from local_engine.model.loader import load_model
from local_engine.model.manifest import open_model, verify_directory
from local_engine.text.tokenizer import ChatTokenizer, load_chat_tokenizer
from tests.local_engine.models import DEMO_MODEL


def test_the_artefact_is_small_verified_and_described() -> None:
    assert sum(path.stat().st_size for path in DEMO_MODEL.iterdir()) <= 12_000_000
    assert (DEMO_MODEL / "manifest.json").exists()
    digest = verify_directory(DEMO_MODEL)
    assert load_model(DEMO_MODEL).digest == digest
    card = (DEMO_MODEL / "MODEL_CARD.md").read_text()
    assert "What it is not" in card
    assert "train-demo --out" in card


def test_greedy_answers_to_the_corpus_are_right(demo_raw_tokenizer: Tokenizer) -> None:
    decoder = load_model(DEMO_MODEL).decoder
    rates = exact_match_rates(decoder, demo_raw_tokenizer, read_corpus(), seed=5, draws_per_task=40)
    assert rates["corpus questions"] >= 0.98
    assert rates["corpus questions, system prompt"] >= 0.98
    assert rates["corpus questions, second turn"] >= 0.95
    assert rates["repeat"] >= 0.8


def test_the_template_writes_what_training_wrote(
    demo_tokenizer: ChatTokenizer, demo_raw_tokenizer: Tokenizer
) -> None:
    conversation = (
        Message("system", "You are a helpful assistant."),
        Message("user", "Hello"),
        Message("assistant", "Hello! Ask me something about Gatewright."),
        Message("user", "What is a plan?"),
    )
    trained, _ = encode_conversation(demo_raw_tokenizer, conversation)
    served = demo_tokenizer.encode_chat(
        [{"role": message.role, "content": message.content} for message in conversation]
    )
    assert served == [*trained, demo_raw_tokenizer.token_to_id("<|assistant|>")]


def test_every_question_of_the_corpus_is_written_once() -> None:
    corpus = read_corpus()
    questions = [question for entry in corpus.entries for question in entry.questions]
    assert len(corpus.entries) >= 60
    assert len(questions) == len({question.lower() for question in questions})
    assert all(len(entry.questions) >= 2 for entry in corpus.entries)
    assert not set(corpus.off_topic) & set(corpus.off_topic_held_out)


def test_training_repeats_itself_and_writes_a_directory_that_loads(tmp_path: Path) -> None:
    corpus = read_corpus()
    for name in ("one", "two"):
        tokenizer = train_tokenizer(corpus, seed=3)
        decoder = new_decoder(tokenizer, seed=3)
        phase = Phase(2, 1e-3, FACTS_FIRST, batch_size=2)
        loss = train_phase(decoder, tokenizer, corpus, phase, seed=3)
        report = TrainingReport("train", 1.0, loss, {"corpus questions": 0.0}, corpus)
        write_artefact(tmp_path / name, decoder, tokenizer, report)
    assert load_model(tmp_path / "one").decoder.spec.context_window == 2048
    with open_model(tmp_path / "one") as files:
        assert load_chat_tokenizer(files).vocab_size == 1536
    for name in ("model.safetensors", "tokenizer.json", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
