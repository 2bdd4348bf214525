"""OpenAI's text completions: prompts, their continuations, streams of them, and chats instead."""
