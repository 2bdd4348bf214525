"""OpenAI's text completions: prompts, continuations, streams, and chats in their place."""
