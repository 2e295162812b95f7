"""OpenAI's API: `POST /v1/chat/completions` and `GET /v1/models`, which read and write frames and keep no state."""
