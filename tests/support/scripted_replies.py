"""Default replies of a scripted model in the tests of the gateway's protocols, after the test's own ones."""

from typing import Any

REPLIES: list[dict[str, Any]] = [
    {"when": {"user": "late"}, "say": [{"text": "I look. "}, {"call": "train_position"}]},
    {"when": {"result_of": "train_position"}, "say": [{"text": "By twenty-five minutes."}]},
    {
        "when": {"user": "paint and look"},
        "say": [{"call": "paint", "arguments": {"colour": "blue"}}, {"call": "train_position"}],
    },
    {
        "when": {"user": "paint twice"},
        "say": [{"call": "paint", "arguments": {"colour": colour}} for colour in ("blue", "red")],
    },
    {
        "when": {"user": "paint"},
        "say": [{"text": "I paint. "}, {"call": "paint", "arguments": {"colour": "blue"}}],
    },
    {"when": {"result_of": "paint"}, "say": [{"text": "It is painted."}]},
    {"when": {"user": "break"}, "say": [{"fail": "refused_context", "message": "That is too much."}]},
    {
        "when": {"user": "night train"},
        "say": [{"thought": "Let me think."}, {"text": "Yes, at 22:40."}],
        "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_tokens": 2},
    },
]
