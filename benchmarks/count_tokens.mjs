// Counts tokens by the vendors' published vocabularies: a JSON list of texts in, two lists out.
import { readFileSync } from "node:fs";
import { getTokenizer } from "@anthropic-ai/tokenizer";
import { Tiktoken } from "js-tiktoken/lite";
import o200k from "js-tiktoken/ranks/o200k_base";

const texts = JSON.parse(readFileSync(0, "utf8"));
const openai = new Tiktoken(o200k);
const anthropic = getTokenizer();
const counts = {
  openai: texts.map((text) => openai.encode(text, [], []).length),
  anthropic: texts.map((text) => anthropic.encode(text.normalize("NFKC"), "all").length),
};
console.log(JSON.stringify(counts));
