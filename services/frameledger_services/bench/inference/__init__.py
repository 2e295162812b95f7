"""The bench of inference: a model server of our own on both wires, and what runs against it.

`figures` is the list of all that is measured; `bare_sdk` is the yardstick, the official SDK in a bare loop.

`model_server` speaks as OpenAI's chat completions and as Anthropic's messages do, at a pace, and with every trouble
that a real one makes; tests and benches use the same one. `answers` is what it can be told to say, `openai_wire` and
`anthropic_wire` how each wire says it, `http_wire` the HTTP beneath.
"""
