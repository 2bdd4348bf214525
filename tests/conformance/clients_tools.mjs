// The official npm clients call a tool through a gateway and come back; one JSON object per check.
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, jsonSchema, stepCountIs, tool } from "ai";
import OpenAI from "openai";

const { URL: url, KEY: key, TARGETS } = process.env;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const aiOpenAI = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const aiAnthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: key });
const messages = [{ role: "user", content: "How old is the bridge?" }];
const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const seen = [];
const answer = ({ name }) => {
  seen.push(name);
  return `${name}: 120`;
};
const tools = {
  age_of: tool({ description: "Age", inputSchema: jsonSchema(schema), execute: answer }),
};
const asked = { prompt: "How old?", tools, stopWhen: stepCountIs(2) };

const CHECKS = {
  async "openai runTools"(model) {
    const runner = openai.chat.completions.runTools({
      model,
      messages,
      tools: [
        {
          type: "function",
          function: { name: "age_of", parameters: schema, parse: JSON.parse, function: answer },
        },
      ],
    });
    return await runner.finalContent();
  },
  async "anthropic toolRunner"(model) {
    const runner = anthropic.beta.messages.toolRunner({
      model,
      max_tokens: 50,
      messages,
      tools: [{ name: "age_of", input_schema: schema, run: answer, parse: (input) => input }],
    });
    return (await runner.runUntilDone()).content[0].text;
  },
  async "ai openai tools"(model) {
    return (await generateText({ model: aiOpenAI.responses(model), ...asked })).text;
  },
  async "ai anthropic tools"(model) {
    return (await generateText({ model: aiAnthropic(model), ...asked })).text;
  },
  async "ai object"(model) {
    const made = await generateObject({
      model: aiOpenAI.chat(model),
      schema: jsonSchema({ ...schema, additionalProperties: false }),
      prompt: "Which bridge?",
    });
    seen.push(made.object.name);
    return "It is 120.";
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
    console.log(JSON.stringify({ name, model, said, saw: seen.pop() ?? "" }));
  }
}
process.exit(0);
