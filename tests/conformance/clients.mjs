// The official npm clients at a gateway; prints one JSON object per check, and nothing else.
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const { URL: url, KEY: key, TARGETS } = process.env;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const aiOpenAI = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const aiAnthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: key });
const messages = [{ role: "user", content: "How old is the bridge?" }];

const CHECKS = {
  async "openai chat"(model) {
    const made = await openai.chat.completions.create({ model, messages });
    return made.choices[0].message.content;
  },
  async "openai chat stream"(model) {
    const runner = openai.chat.completions.stream({ model, messages });
    return (await runner.finalChatCompletion()).choices[0].message.content;
  },
  async "openai responses"(model) {
    return (await openai.responses.create({ model, input: "How old?" })).output_text;
  },
  async "openai responses stream"(model) {
    const stream = openai.responses.stream({ model, input: "How old?" });
    return (await stream.finalResponse()).output_text;
  },
  async "openai responses count"(model) {
    const counted = await openai.responses.inputTokens.count({ model, input: "How old?" });
    return counted.input_tokens > 0 ? "counted" : "zero";
  },
  async "anthropic messages"(model) {
    const made = await anthropic.messages.create({ model, max_tokens: 50, messages });
    return made.content[0].text;
  },
  async "anthropic messages stream"(model) {
    const stream = anthropic.messages.stream({ model, max_tokens: 50, messages });
    return await stream.finalText();
  },
  async "anthropic count"(model) {
    const counted = await anthropic.messages.countTokens({ model, messages });
    return counted.input_tokens > 0 ? "counted" : "zero";
  },
  async "ai openai chat"(model) {
    return (await generateText({ model: aiOpenAI.chat(model), prompt: "How old?" })).text;
  },
  async "ai openai responses"(model) {
    return (await generateText({ model: aiOpenAI.responses(model), prompt: "How old?" })).text;
  },
  async "ai openai chat stream"(model) {
    return await streamText({ model: aiOpenAI.chat(model), prompt: "How old?" }).text;
  },
  async "ai openai responses stream"(model) {
    return await streamText({ model: aiOpenAI.responses(model), prompt: "How old?" }).text;
  },
  async "ai anthropic"(model) {
    return (await generateText({ model: aiAnthropic(model), prompt: "How old?" })).text;
  },
  async "ai anthropic stream"(model) {
    return await streamText({ model: aiAnthropic(model), prompt: "How old?" }).text;
  },
};

for (const model of TARGETS.split(",")) {
  for (const [name, check] of Object.entries(CHECKS)) {
    let said;
    try {
      said = await check(model);
    } catch (error) {
      said = `${error?.name}: ${error?.message}`;
    }
    console.log(JSON.stringify({ name, model, said }));
  }
}
process.exit(0);
