"""The rules of Anthropic's Messages API for a request body beyond its types."""

import json
from itertools import pairwise


def keeps_the_rules(body, *, thinking=False):
    """Assert that the API would accept the request. `thinking` says whether extended thinking is enabled."""
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles[0] == roles[-1] == "user"
    assert all(one != other for one, other in pairwise(roles))
    called: list[str] = []
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        answers = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert answers == called
        assert kinds[: len(answers)] == ["tool_result"] * len(answers)
        called = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert "thinking" not in kinds[-1]
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
    assert not called
    assert json.dumps(body).count("cache_control") <= 4
    if any(block["type"] == "tool_use" for message in messages for block in message["content"]):
        assert body["tools"]
    if thinking:
        for message in _going_on(messages):
            if message["role"] == "assistant":
                assert message["content"][0]["type"] in ("thinking", "redacted_thinking")


def _going_on(messages):
    """Returns the messages after the user's last own text: an answer that continues with the results of its calls."""
    own = [
        at
        for at, message in enumerate(messages)
        if message["role"] == "user"
        and not any(block["type"] == "tool_result" for block in message["content"])
    ]
    return messages[own[-1] + 1 :]
