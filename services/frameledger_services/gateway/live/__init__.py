"""Live streams: a conversation's frames as server-sent events, for thousands of clients from one statement."""
