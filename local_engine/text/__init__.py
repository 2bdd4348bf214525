"""Between text and tokens: tokenizer, chat template, incremental detokenisation, grammars."""
