"""Thirteen contexts whose request bodies are stored in `golden/`, with the settings of the service and the request.

`python -m tests.contracts.golden_contexts` writes the bodies again. Review the difference before it is committed: every
provider will receive these bodies from then on.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frameledger import async_tool_messages
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger.fold import Conversation, fold
from frameledger.frames import FunctionCallFromLLM
from frameledger.record import decode
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger_services.providers import LLMSettings, UnmappableError, extra_content, reasoning
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.request import Request, encoded

GOLDEN = Path(__file__).parent / "golden"
REAL = GOLDEN / "real-conversations.sha256.json"
PROVIDERS: dict[str, type[OpenAILLMService | AnthropicLLMService]] = {
    "openai": OpenAILLMService,
    "anthropic": AnthropicLLMService,
}


@dataclass(frozen=True)
class Asked:
    context: LLMContext
    settings: LLMSettings = field(default_factory=LLMSettings)
    """The service's."""

    request: dict[str, Any] = field(default_factory=dict)
    """Arguments of `LLMService.request`."""

    appended: tuple[str, ...] = ()
    base_url: str | None = None
    """The address of a compatible server."""


PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER = FunctionSchema(
    "get_weather",
    "The weather of a city.",
    {"city": {"type": "string", "description": "Its name."}},
    ["city"],
)
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "strict": True,
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    },
}


def user(content):
    return {"role": "user", "content": content}


def bot(content):
    return {"role": "assistant", "content": content}


def call(tool_call_id, name="get_weather", arguments='{"city": "Oslo"}'):
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
    }


def result(tool_call_id, content):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def thought(llm, text, signature):
    return LLMSpecificMessage(llm, {"type": "thought", "text": text, "signature": signature})


SIGNED = {"google": {"thought_signature": "c2ln+/=="}}
CALLED = [
    FunctionCallFromLLM(function_name="get_weather", tool_call_id=tool_call_id, arguments=arguments)
    for tool_call_id, arguments in (("call_1", '{"city": "Oslo"}'), ("call_2", '{"city":"Rome"}'))
]
*_, KEPT = extra_content.thought_of("openai", CALLED, [SIGNED, None])
EXTRA = KEPT.signature

CONTEXTS = {
    "01-a-question": Asked(LLMContext([user("What is an event log? Qué es? 何? 🐈")])),
    "02-instructions": Asked(
        LLMContext(
            [
                {"role": "system", "content": "You are the context's."},
                {"role": "developer", "content": "Speak in short sentences."},
                user("Hello."),
                bot("Hello! How can I help?"),
                {"role": "system", "content": "The user has logged in."},
                {"role": "developer", "content": "Your tools have changed."},
                user("Who am I?"),
            ]
        ),
        LLMSettings(system_instruction="You are the service's."),
        appended=("Answer in plain text.",),
    ),
    "03-parallel-calls": Asked(
        LLMContext(
            [
                user("Weather in Oslo and Rome, and what time is it?"),
                bot("Let me look."),
                call("call_1"),
                result("call_1", '{"celsius":-3.50}'),
                call("call_2", arguments='{"city":"Rome","note":"\\"quoted\\" \\u00fc"}'),
                result("call_2", "COMPLETED"),
                call("call_3", "get_time", "{}"),
                result("call_3", "IN_PROGRESS"),
                user("And?"),
            ],
            [WEATHER, CLOCK],
            tool_choice="auto",
        ),
        request={"answers": [None, "run 1", "run 1", None, "run 1", None, "run 2", None, None]},
    ),
    "04-background-calls": Asked(
        LLMContext(
            [
                user("Book the flight."),
                call("call_1", "book", '{"flight":"HAT123"}'),
                async_tool_messages.build_started_message("call_1"),
                bot("I am booking it."),
                async_tool_messages.build_intermediate_result_message("call_1", '"seat held"'),
                user("Thanks."),
                bot("You are welcome."),
                async_tool_messages.build_final_result_message("call_1", '{"booking":"ZX81"}'),
            ],
            [FunctionSchema("book", "Books a flight.", {"flight": {"type": "string"}}, ["flight"])],
        ),
        request={"cancel_tools": ["book"]},
    ),
    "05-images-and-files": Asked(
        LLMContext(
            [
                user(
                    [
                        {"type": "text", "text": "What is on these?"},
                        {"type": "image_url", "image_url": {"url": PIXEL}},
                        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
                        {
                            "type": "file",
                            "file": {
                                "filename": "terms.pdf",
                                "file_data": "data:application/pdf;base64,JVBERi0=",
                            },
                        },
                    ]
                ),
                bot([{"type": "text", "text": "A cat"}, {"type": "refusal", "refusal": "and no more."}]),
                user("Thank you."),
            ]
        )
    ),
    "06-sound": Asked(
        LLMContext([user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}])])
    ),
    "07-thoughts": Asked(
        LLMContext(
            [
                user("Weather?"),
                thought("anthropic", " They ask\nfor the weather. ", "c2ln+/=="),
                thought("anthropic", "", {"type": "redacted_thinking", "data": "RW5jcnlwdGVk+/="}),
                thought("google", "another provider's", "x"),
                bot("Let me look."),
                call("call_1"),
                result("call_1", "-3"),
                call("call_2"),
                result("call_2", "-4"),
                thought("anthropic", "It is cold.", "Y29sZA=="),
                bot("It is cold."),
                thought("anthropic", "was interrupted", "bm90aGluZw=="),
                user("In Rome?"),
            ],
            [WEATHER],
        )
    ),
    "08-own-messages-and-tools": Asked(
        LLMContext(
            [
                user("Hello."),
                LLMSpecificMessage(
                    "openai", {"role": "assistant", "content": "Hello from OpenAI.", "name": "o"}
                ),
                LLMSpecificMessage(
                    "anthropic",
                    {"role": "assistant", "content": [{"type": "text", "text": "Hello from Anthropic."}]},
                ),
                user("Search."),
            ],
            ToolsSchema(
                [WEATHER],
                {
                    "openai": [{"type": "custom", "custom": {"name": "run", "description": "Runs code."}}],
                    "anthropic": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}],
                },
            ),
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
        )
    ),
    "09-what-clients-append": Asked(
        LLMContext(
            [
                bot("Good morning!"),
                result("call_9", "a result of nothing"),
                call("call_1"),
                user("Wait."),
                result("call_1", "late"),
                call("call_1", arguments="not json"),
                call("an id: with signs, " + "0" * 40, arguments={"city": "Oslo"}),
                user("   "),
                bot(""),
                bot("I am the last."),
            ]
        )
    ),
    "10-settings": Asked(
        LLMContext(
            [user("Hello.")],
            [WEATHER],
            {
                "temperature": 0.25,
                "max_completion_tokens": 300,
                "extra": {"metadata": {"user_id": "u-1"}},
                "add_tool_change_messages": True,
            },
            "required",
        ),
        LLMSettings(
            model="a-model", temperature=0.9, top_p=0.5, max_tokens=200, extra={"service_tier": "auto"}
        ),
    ),
    "11-caching": Asked(
        LLMContext(
            [
                {"role": "system", "content": "Be kind."},
                user("Weather?"),
                bot("Let me look."),
                call("call_1"),
                result("call_1", "-3"),
                bot("It is cold."),
                user("And the time?"),
                call("call_2", "get_time", "{}"),
                result("call_2", "IN_PROGRESS"),
            ],
            [WEATHER, CLOCK],
        ),
        LLMSettings(system_instruction="You are the service's."),
        {"prompt_caching": True},
    ),
    "12-out-of-band": Asked(
        LLMContext(
            [
                {"role": "system", "content": "Be kind."},
                user("Weather?"),
                call("call_1"),
                result("call_1", "-3"),
            ]
        ),
        LLMSettings(max_completion_tokens=4000),
        {"max_tokens": 50, "system_instruction": "Summarise in one word."},
    ),
    "13-extra-content": Asked(
        LLMContext(
            [
                user("Weather in Oslo and Rome?"),
                thought(extra_content.kept_under("openai"), "", EXTRA),
                call("call_2", arguments='{"city":"Rome"}'),
                result("call_2", "14"),
                call("call_1"),
                result("call_1", "-3"),
            ],
            [WEATHER],
        ),
        request={"answers": [None, "run", "run", "run", "run", "run"]},
        base_url="https://compatible.example/v1",
    ),
    "14-reasoning": Asked(
        LLMContext(
            [
                user("Weather in Oslo?"),
                thought(reasoning.kept_under("openai"), "I look", reasoning.signature("reasoning_content")),
                thought(reasoning.kept_under("openai"), " it up.", reasoning.signature("reasoning_content")),
                bot("Let me look."),
                call("call_1"),
                result("call_1", "-3"),
                bot("It is cold."),
                thought(reasoning.kept_under("openai"), "", {"field": "role"}),
                user("Thanks."),
            ],
            [WEATHER],
        ),
        request={"answers": [None, "run", "run", "run", "run", "run", "later", "later", None]},
        base_url="https://compatible.example/v1",
    ),
}


def rendered(provider: str, asked: Asked) -> Request | str:
    """Returns the request, or the error message."""
    service = PROVIDERS[provider](settings=asked.settings, base_url=asked.base_url)
    for text in asked.appended:
        service.append_system_instruction(text)
    try:
        return service.request(asked.context, **asked.request)
    except UnmappableError as error:
        return error.message


def real_context(conversation: dict[str, Any]) -> LLMContext:
    """Returns the context of a real conversation."""
    frames = [decode(encoded(frame)) for frame in conversation["frames"]]
    return LLMContext(fold(frames, Conversation.new(conversation["name"])).messages)


def real_requests(conversations: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns the hashes of the requests for real conversations, which are not in this repository."""
    hashes: dict[str, dict[str, str]] = {}
    for one in conversations:
        asked = Asked(real_context(one))
        hashes[one["name"]] = {provider: rendered(provider, asked).sha256 for provider in PROVIDERS}
    return hashes


def write() -> None:
    from tests.unit.test_real_conversations import CONVERSATIONS

    for name, asked in CONTEXTS.items():
        told = {provider: rendered(provider, asked) for provider in PROVIDERS}
        bodies = {name: one if isinstance(one, str) else one.body for name, one in told.items()}
        text = json.dumps(bodies, indent=1, ensure_ascii=False)
        (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    REAL.write_text(json.dumps(real_requests(CONVERSATIONS), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
