"""A subset of OpenAI's Responses API: a response is an answer in a conversation, and its id says where."""
