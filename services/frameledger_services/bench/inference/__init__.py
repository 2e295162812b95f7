"""The bench of inference: a scripted model server with the APIs of OpenAI and Anthropic, and the workers that run
against it.

`figures` lists all measurements; `bare_sdk` is the yardstick, the official SDK in a bare loop.

`model_server` responds like OpenAI's chat completions and Anthropic's messages, at a pace, and with every failure of a
real server; tests and benches use the same one. `answers` has what it can be told to say, `wire_format` how that is
played, `openai_wire` and `anthropic_wire` the formats, `http_wire` the HTTP below them.
"""
