"""What Anthropic's messages demand of a body beyond its types."""

import json
from itertools import pairwise


def keeps_the_rules(body):
    """Fails where the API would refuse the request."""
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
