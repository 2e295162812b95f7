"""The schemas of the OpenAPI document that are written by hand; those of response models are derived (`document`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameledger_services.gateway.problems import KINDS, PAGES
from frameledger_services.gateway.schemas import FRAME

_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_TIME = {"type": "string", "format": "date-time"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_INTEGER = {"type": ["integer", "null"]}
_MODEL = {
    **_MAYBE_TEXT,
    "description": "A model of `GET /v1/models`; `frameledger`, or none: any that is offered.",
}
_STREAM = {
    "description": "`true`: stream the answer as server-sent events.",
    "type": ["boolean", "null"],
}
_VALUES: dict[str, Any] = {"type": "array", "items": {}}


def _object(
    description: str, optional: Mapping[str, Any] | None = None, /, **properties: Any
) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
    }


_STORED = _object(
    "The outcome of a frame.",
    id=_TEXT,
    place=_TEXT,
    version=_MAYBE_INTEGER,
    outcome=_MAYBE_TEXT,
    reason=_MAYBE_TEXT,
    duplicate={"type": "boolean"},
)

_COMPLETED = {
    "type": "boolean",
    "description": "Of an append: whether frames got an id and a time, or an expected version, from the gateway.",
}

SCHEMAS = {
    "Problem": _object(
        "Why a request failed (RFC 9457).",
        type={"type": "string", "enum": [f"{PAGES}{word}" for word in KINDS]},
        title=_TEXT,
        status=_INTEGER,
        detail=_TEXT,
        instance=_TEXT,
    ),
    "Frame": FRAME,
    "Context": _object(
        "A context: messages, tools, tool choice and settings for a model.",
        context_id=_TEXT,
        version=_INTEGER,
        newest=_INTEGER,
        era=_INTEGER,
        logged_at=_MAYBE_TEXT,
        parked_version=_MAYBE_INTEGER,
        open_run_id=_MAYBE_TEXT,
        positions={"type": "array", "items": _INTEGER},
        messages=_VALUES,
        answers={"type": "array", "items": _MAYBE_TEXT},
        tools={},
        tool_choice={},
        settings={},
        prompt_caching={"type": ["boolean", "null"]},
        skip_tts={"type": ["boolean", "null"]},
        mirror=_MAYBE_TEXT,
    ),
    "FramePage": _object(
        "Stored frames in the order of their versions.",
        context_id=_TEXT,
        frames={
            "type": "array",
            "items": {"$ref": "#/components/schemas/StoredFrame"},
        },
    ),
    "StoredFrame": _object(
        "A stored frame with its outcome. `frame` comes last, and is the value of the record byte for byte; "
        "if that has line ends, `frame` has spaces instead, and `raw` is the unchanged value as a string.",
        {"raw": _TEXT},
        version=_INTEGER,
        id=_TEXT,
        type=_TEXT,
        outcome=_TEXT,
        reason=_MAYBE_TEXT,
        logged_at=_TIME,
        produced_at=_MAYBE_TEXT,
        source=_MAYBE_TEXT,
        run_id=_MAYBE_TEXT,
        tool_call_id=_MAYBE_TEXT,
        causation_id=_MAYBE_TEXT,
        trace_id=_MAYBE_TEXT,
        place=_object("Its position on the log.", partition=_INTEGER, generation=_INTEGER, offset=_INTEGER),
        frame={"type": "object", "required": ["type"]},
    ),
    "Appended": _object(
        "Frames that are stored: `place` is topic:generation:partition:offset.",
        {"completed": _COMPLETED},
        context_id=_TEXT,
        version=_MAYBE_INTEGER,
        frames={"type": "array", "items": _STORED},
    ),
    "Accepted": _object(
        "Frames that are on the log. `detail`: why they are not known to be stored, if the request waited.",
        {"completed": _COMPLETED},
        context_id=_TEXT,
        detail=_MAYBE_TEXT,
        frames={"type": "array", "items": _object("A frame.", id=_TEXT, place=_TEXT)},
    ),
    "OpenAIError": _object(
        "An error in the format of OpenAI's API.",
        error=_object(
            "The message of the error.", message=_TEXT, type=_TEXT, param=_MAYBE_TEXT, code=_MAYBE_TEXT
        ),
    ),
    "CompletionRequest": {
        "type": "object",
        "description": "A request of OpenAI's chat completions, if `FRAMELEDGER_GATEWAY_OPENAI` is `true`. "
        "Unsupported parameters are refused by name.",
        "required": ["messages"],
        "properties": {
            "messages": {
                "description": "The whole history: messages that the conversation already has are skipped.",
                "type": "array",
                "items": {"type": "object"},
                "minItems": 1,
            },
            "model": _MODEL,
            "stream": _STREAM,
            "tools": {
                "description": "Functions of the client, which answers their calls with tool messages.",
                "type": ["array", "null"],
                "items": {"type": "object", "required": ["type", "function"]},
            },
            "conversation": {"description": "The conversation: its id, or an object with it."},
        },
    },
    "RunAgentInput": {
        "type": "object",
        "description": "A request of AG-UI 1.0, if `FRAMELEDGER_GATEWAY_AG_UI` is `true`. `state` is ignored.",
        "required": ["threadId", "runId", "messages"],
        "properties": {
            "threadId": {
                "type": "string",
                "minLength": 1,
                "maxLength": 255,
                "description": "The conversation.",
            },
            "runId": {
                "type": "string",
                "minLength": 1,
                "maxLength": 255,
                "description": "The client's id of the run: a repeated request asks only once.",
            },
            "parentRunId": {"type": "string", "description": "Returned with `RUN_STARTED`."},
            "messages": {
                "type": "array",
                "description": "The whole history: messages whose ids the conversation has are skipped.",
                "items": {"type": "object", "required": ["id", "role"]},
            },
            "tools": {
                "type": "array",
                "description": "Functions of the client, which answers their calls with tool messages.",
                "items": {"type": "object", "required": ["name"]},
            },
            "context": {
                "type": "array",
                "description": "Context of the application: the model reads it as a developer message.",
                "items": {"type": "object", "required": ["description", "value"]},
            },
            "forwardedProps": {"description": "Stored in the metadata of the frame that asks."},
            "resume": {
                "type": "array",
                "description": "Answers to the interrupts of the previous run: calls that wait for a person.",
                "items": {"type": "object", "required": ["interruptId", "status"]},
            },
        },
    },
    "Completion": _object(
        "The answer.",
        id=_TEXT,
        object=_TEXT,
        created=_INTEGER,
        model=_TEXT,
        choices=_VALUES,
        usage={"type": ["object", "null"]},
        conversation=_object("The conversation.", id=_TEXT),
    ),
    "ResponseRequest": {
        "type": "object",
        "description": "A request of OpenAI's responses, if `FRAMELEDGER_GATEWAY_OPENAI` is `true`. Unsupported "
        "parameters are refused by name.",
        "required": ["input"],
        "properties": {
            "input": {
                "description": "The new input: text, or items (message, function_call, function_call_output, "
                "item_reference). Items that begin as the conversation does count as the whole history.",
                "type": ["string", "array"],
                "items": {"type": "object"},
            },
            "instructions": {**_MAYBE_TEXT, "description": "The system instruction of this response."},
            "model": _MODEL,
            "stream": _STREAM,
            "store": {
                "type": ["boolean", "null"],
                "description": "Every response is stored: `false` is rejected.",
            },
            "metadata": {
                "description": "Up to 16 texts by their names, returned with the response.",
                "type": ["object", "null"],
                "additionalProperties": _TEXT,
            },
            "previous_response_id": {
                **_MAYBE_TEXT,
                "description": "The response to continue, instead of `conversation`.",
            },
            "conversation": {"description": "The conversation: its id, or an object with it."},
            "tools": {
                "description": "Functions of the client, which answers their calls with function_call_output.",
                "type": ["array", "null"],
                "items": {"type": "object", "required": ["type", "name"]},
            },
        },
    },
    "Response": _object(
        "A response.",
        id=_TEXT,
        object=_TEXT,
        created_at={"type": "number"},
        status={"type": "string", "enum": ["in_progress", "completed", "incomplete", "cancelled", "failed"]},
        model=_TEXT,
        output=_VALUES,
        error={"type": ["object", "null"]},
        usage={"type": ["object", "null"]},
        conversation=_object("The conversation.", id=_TEXT),
    ),
    "Model": _object("A model.", id=_TEXT, object=_TEXT, created=_INTEGER, owned_by=_TEXT),
    "ModelList": _object(
        "Models.",
        object=_TEXT,
        data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    ),
}
