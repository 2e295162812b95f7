"""OpenAI's API: `POST /v1/chat/completions` and `GET /v1/models`, as thin readers and writers of frames."""
