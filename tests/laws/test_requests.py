"""For any context, an adapter returns a request or raises a named error."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frameledger.context import LLMContext
from frameledger_services.providers import LLMService, LLMSettings, UnmappableError
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.scripted import ScriptedLLMService

SERVICES: dict[str, LLMService[Any]] = {
    "openai": OpenAILLMService(
        api_key="none", settings=LLMSettings(model="m", system_instruction="Be brief.")
    ),
    "anthropic": AnthropicLLMService(
        api_key="none", settings=LLMSettings(model="m", system_instruction="Be brief.")
    ),
    "scripted": ScriptedLLMService(),
}

WORDS = st.sampled_from(
    ["", " ", "a", "x", "\ud83d", "data:image/png;base64,AA==", "https://a.example/i.png", "{}"]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.just(0.5), WORDS)
KEYS = st.sampled_from(
    ["type", "text", "name", "id", "function", "image_url", "url", "data", "format", "llm", "tool"]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)


def sloppy(**fields):
    """Returns a mapping with these fields, some of which are missing or have arbitrary values."""
    either = {name: st.one_of(field, field, field, JSON) for name, field in fields.items()}
    return st.fixed_dictionaries({}, optional=either)


PARTS = st.one_of(
    sloppy(type=st.just("text"), text=WORDS),
    sloppy(type=st.just("image_url"), image_url=sloppy(url=WORDS, detail=WORDS)),
    sloppy(type=st.just("input_audio"), input_audio=sloppy(data=WORDS, format=WORDS)),
    sloppy(type=st.just("file"), file=sloppy(file_data=WORDS, file_id=WORDS, filename=WORDS)),
    sloppy(type=st.just("refusal"), refusal=WORDS),
)
CONTENTS = st.one_of(WORDS, st.lists(PARTS, max_size=3), st.none())
IDS = st.sampled_from(["x", "y", ""])
CALLS = st.lists(
    sloppy(
        id=IDS,
        type=st.just("function"),
        function=sloppy(
            name=st.sampled_from(["f", "g"]), arguments=st.sampled_from(["{}", "[]", "{", '{"a": 1}', ""])
        ),
    ),
    max_size=3,
)
THOUGHTS = sloppy(type=st.just("thought"), text=WORDS, signature=st.one_of(WORDS, JSON))
MESSAGES = st.lists(
    st.one_of(
        sloppy(role=st.sampled_from(["system", "developer", "user"]), content=CONTENTS),
        sloppy(role=st.just("assistant"), content=CONTENTS, tool_calls=CALLS),
        sloppy(role=st.just("tool"), content=CONTENTS, tool_call_id=IDS),
        st.fixed_dictionaries(
            {"llm": st.sampled_from(sorted(SERVICES)), "message": st.one_of(THOUGHTS, JSON)}
        ),
    ),
    max_size=6,
)
FUNCTION = sloppy(name=st.sampled_from(["f", "g"]), description=WORDS, parameters=JSON, strict=SCALARS)
SCHEMA = sloppy(name=st.sampled_from(["f", "g"]), properties=st.just({"a": {}}), required=st.just(["a"]))
TOOLS = st.lists(
    st.one_of(
        sloppy(type=st.just("function"), function=FUNCTION),
        FUNCTION,
        SCHEMA,
        st.fixed_dictionaries({"llm": st.sampled_from(sorted(SERVICES)), "tool": JSON}),
    ).filter(lambda tool: isinstance(tool, dict)),
    max_size=3,
)
CHOICES = st.one_of(
    st.sampled_from(["auto", "required", "none", "other"]), sloppy(type=st.just("function"), name=IDS)
)
SETTINGS = sloppy(**dict.fromkeys(LLMSettings.model_fields, st.one_of(SCALARS, JSON)))


@pytest.mark.parametrize("provider", SERVICES)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES, TOOLS, CHOICES, st.one_of(st.just({}), SETTINGS), st.booleans())
def test_a_context_becomes_a_request_or_is_refused_by_name(
    provider, messages, tools, choice, chosen, caching
):
    service = SERVICES[provider]
    context = LLMContext(messages, tools, chosen, choice)
    before = json.dumps(context.to_wire())

    def request():
        return service.request(context, prompt_caching=caching, cancel_tools=["f", "h"]).content

    try:
        content = request()
    except UnmappableError:
        content = None
    if content is not None:
        assert content == request()
        assert json.loads(content)["messages"] is not None
    assert json.dumps(context.to_wire()) == before
