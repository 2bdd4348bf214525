"""Trains the demo model from the written corpus, on one CPU core in about forty minutes."""

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from local_engine.demo_model.artefact import TrainingReport, write_artefact
from local_engine.demo_model.chat_format import END, encode_conversation, token_id
from local_engine.demo_model.conversations import (
    FACTS_FIRST,
    TASKS_NEXT,
    ConversationMaker,
    Mixture,
)
from local_engine.demo_model.corpus import Corpus, read_corpus
from local_engine.demo_model.evaluation import exact_match_rates
from local_engine.demo_model.tokenizer_training import VOCAB_SIZE, train_tokenizer
from local_engine.model.decoder import Decoder
from local_engine.model.loader import load_model
from local_engine.model.spec import ModelSpec


WARMUP_STEPS = 150
# Conversations are sorted by length within this many batches, so that little is padded.
BATCHES_PER_POOL = 16
WIDTH_STEP = 8
ROWS_STEP = 256
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the training with its own mixture and learning rate."""

    steps: int
    peak_learning_rate: float
    mixture: Mixture
    batch_size: int = 32

    def scaled(self, share: float) -> "Phase":
        return replace(self, steps=max(1, round(self.steps * share)))


PHASES = (
    Phase(4400, 1.5e-3, FACTS_FIRST),
    Phase(2300, 1.2e-3, TASKS_NEXT),
)
COMMAND = (
    "python -m local_engine train-demo --out local_engine/demo_model/weights"
    " --seed {seed} --threads {threads}"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded token ids [rows, tokens] and which of them are learned."""

    ids: torch.Tensor
    learned: torch.Tensor


def demo_spec(tokenizer: Tokenizer) -> ModelSpec:
    """The demo model's shape: about four million parameters."""
    return ModelSpec(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=640,
        num_layers=5,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        context_window=2048,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        eos_token_ids=(token_id(tokenizer, END),),
    )


def new_decoder(tokenizer: Tokenizer, seed: int) -> Decoder:
    """An untrained decoder; the seed fixes its weights."""
    torch.manual_seed(seed)
    decoder = Decoder(demo_spec(tokenizer))
    _initialise(decoder)
    return decoder


def train_phase(
    decoder: Decoder, tokenizer: Tokenizer, corpus: Corpus, phase: Phase, seed: int
) -> float:
    """Train in place; ends with the weights rounded to their type on disk, and the mean loss.

    A phase starts with a fresh optimizer, so it can also continue from a stored model.
    """
    optimizer = torch.optim.AdamW(
        decoder.parameters(), lr=phase.peak_learning_rate, betas=(0.9, 0.98), weight_decay=0.05
    )
    maker = ConversationMaker(corpus, phase.mixture)
    batches = _batches(maker, tokenizer, random.Random(seed), phase.batch_size)
    mean_loss, started = math.nan, time.monotonic()
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, phase)
        loss = _loss(decoder, next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        mean_loss = loss.item() if step == 0 else 0.98 * mean_loss + 0.02 * loss.item()
        if step % 100 == 0:
            print(
                f"step {step} loss {mean_loss:.4f} {time.monotonic() - started:.0f} s", flush=True
            )
    decoder.to(torch.bfloat16).float()
    return mean_loss


def _initialise(decoder: Decoder) -> None:
    residual_std = 0.02 / math.sqrt(2 * decoder.spec.num_layers)
    for name, parameter in decoder.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.normal_(parameter, std=residual_std)
        elif parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)


def _learning_rate(step: int, phase: Phase) -> float:
    """Linear warm-up, then half a cosine down to zero."""
    if step < WARMUP_STEPS:
        return phase.peak_learning_rate * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, phase.steps - WARMUP_STEPS)
    return phase.peak_learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


def _batches(
    maker: ConversationMaker, tokenizer: Tokenizer, rng: random.Random, size: int
) -> Iterator[Batch]:
    while True:
        pool = [
            encode_conversation(tokenizer, maker.draw(rng)) for _ in range(size * BATCHES_PER_POOL)
        ]
        pool.sort(key=lambda encoded: len(encoded[0]))
        starts = list(range(0, len(pool), size))
        rng.shuffle(starts)
        for start in starts:
            rows = pool[start : start + size]
            yield Batch(_padded([ids for ids, _ in rows]), _padded([flags for _, flags in rows]))


def _padded(rows: Sequence[list[int] | list[bool]]) -> torch.Tensor:
    """One tensor of all rows; few distinct widths, so that few kernels are compiled."""
    joined = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    width = joined.shape[1]
    return F.pad(joined, (0, -(width - 1) % WIDTH_STEP))


def _loss(decoder: Decoder, batch: Batch) -> torch.Tensor:
    """Cross-entropy of the learned tokens only: prompts are given, not written."""
    at = batch.learned[:, 1:].flatten().nonzero().squeeze(1)
    at_padded = F.pad(at, (0, -len(at) % ROWS_STEP))
    targets = F.pad(batch.ids[:, 1:].flatten()[at], (0, -len(at) % ROWS_STEP), value=IGNORED)
    with torch.autocast("cpu", dtype=torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        hidden = decoder(batch.ids[:, :-1]).flatten(0, 1)
        logits = decoder.logits(hidden.index_select(0, at_padded))
    return F.cross_entropy(logits, targets, ignore_index=IGNORED)


def main(arguments: list[str]) -> int:
    """Train, measure and write the model directory."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    corpus = read_corpus()
    tokenizer = train_tokenizer(corpus, options.seed)
    if options.continue_from is None:
        decoder = new_decoder(tokenizer, options.seed)
    else:
        decoder = load_model(options.continue_from).decoder.requires_grad_(requires_grad=True)
    loss, started = math.nan, time.monotonic()
    for number in range(options.first_phase, len(PHASES) + 1):
        phase = PHASES[number - 1].scaled(options.scale)
        loss = train_phase(decoder, tokenizer, corpus, phase, options.seed + number - 1)
    rates = exact_match_rates(decoder, tokenizer, corpus, seed=options.seed + 1_000_000)
    report = TrainingReport(
        command=COMMAND.format(seed=options.seed, threads=options.threads),
        duration_s=options.spent_s + time.monotonic() - started,
        loss=loss,
        exact_match=rates,
        corpus=corpus,
    )
    write_artefact(options.out, decoder, tokenizer, report)
    for name, rate in rates.items():
        print(f"{rate:7.1%}  {name}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_engine train-demo", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of each phase's steps")
    parser.add_argument("--first-phase", type=int, default=1, help="2 to leave out the first")
    parser.add_argument("--continue-from", type=Path, help="model written after an earlier phase")
    parser.add_argument("--spent-s", type=float, default=0.0, help="seconds of earlier phases")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
