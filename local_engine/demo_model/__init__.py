"""The demo model: its corpus, tokenizer, training script and weights."""
