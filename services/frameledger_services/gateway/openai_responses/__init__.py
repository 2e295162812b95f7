"""A subset of OpenAI's Responses API: a response is an answer in a conversation, and its id names the conversation and
version."""
