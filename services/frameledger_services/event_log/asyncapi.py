"""The AsyncAPI 3.0 document of the log: each topic as a channel, each kind of record as a message.

It is made from the definitions that the services use, so it describes this release: payloads are the generated JSON
Schemas of the frames, the dataclasses of the effects and the model of a published root; headers, addresses and
configuration are those of `frameledger.headers` and `topics`. Actions are those of our services: your programs send
what they receive. No server is listed, because the broker's address depends on the reader.

The schemas use only features of JSON Schema draft 07, which is the format that AsyncAPI assumes.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from frameledger import headers
from frameledger.effects import CallFunction, Cancel, Effect, RunInference
from frameledger.frames import FRAME_TYPES
from frameledger.published_root import PublishedRoot
from frameledger.record import MAX_KEY_BYTES
from frameledger_services import package_data
from frameledger_services.event_log.topics import TopicNames, topic_specs
from frameledger_services.settings import Settings

Json = dict[str, Any]

ASYNCAPI = "3.0.0"
KAFKA_BINDING = "0.5.0"

LISTS = {"cleanup.policy"}
"""Topic settings that are lists in the Kafka binding; Kafka separates their values by commas."""


def document(settings: Settings) -> Json:
    """Returns the document, a JSON object. Only `topic_prefix` and the settings of topics change it."""
    names = TopicNames(settings.topic_prefix)
    frame_names = list(FRAME_TYPES)
    schemas = {**_frame_schemas(), **_schemas_of_others()}
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Frameledger on Kafka",
            "version": version("frameledger"),
            "description": "Every conversation is a sequence of frames under one key, its context id. Any program may "
            "publish frames; the projector folds them into PostgreSQL, and publishes effects, which request work. "
            "Partitions are those of Java's default partitioner (murmur2 of the key).",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": _channels(settings, names, frame_names),
        "operations": _operations(),
        "components": {
            "messages": {
                **{name: _frame_message(name, schemas[name]) for name in frame_names},
                **_messages_of_others(schemas),
            },
            "schemas": schemas,
            "messageBindings": {
                name: {"kafka": {"key": key, "bindingVersion": KAFKA_BINDING}} for name, key in _KEYS.items()
            },
        },
    }


def _channels(settings: Settings, names: TopicNames, frame_names: list[str]) -> Json:
    frames = (
        "The frames of all conversations, each in the partition of its key and in one order. They are the source of "
        "truth: every table can be rebuilt from them. A frame of an unknown type, or of a newer version, is stored and "
        "changes nothing."
    )
    described = {
        "frames": (names.frames, frame_names, frames),
        "inference": (names.inference, ["RunInference"], "Requested runs of a model."),
        "functionCalls": (names.function_calls, ["CallFunction"], "Requested function calls."),
        "cancellations": (names.cancellations, ["Cancel"], "Runs and calls that have to stop now."),
        "roots": (
            names.roots,
            ["Root"],
            "Roots over all conversations, in the order in which they were computed.",
        ),
        "deadLetters": (
            names.dead_letters,
            ["DeadLetter"],
            "Records that are not frames, as they were received.",
        ),
    }
    config = {spec.name: spec.config for spec in topic_specs(settings)}
    return {
        channel: {
            "address": topic,
            "description": description,
            "messages": {name: _ref("messages", name) for name in messages},
            "bindings": {
                "kafka": {
                    "topic": topic,
                    "topicConfiguration": {
                        name: _config_value(name, value) for name, value in config[topic].items()
                    },
                    "bindingVersion": KAFKA_BINDING,
                }
            },
        }
        for channel, (topic, messages, description) in described.items()
    }


def _operations() -> Json:
    described = {
        "foldFrames": ("receive", "frames", "The projector folds each frame into the tables, once."),
        "publishFrames": (
            "send",
            "frames",
            "Services publish the output of models, the results of functions, and frames that close overdue work.",
        ),
        "requestInference": ("send", "inference", "The projector requests an answer of a model."),
        "runInference": ("receive", "inference", "An inference service answers, each run once."),
        "requestFunctionCalls": ("send", "functionCalls", "The projector requests a call of a function."),
        "callFunctions": ("receive", "functionCalls", "A function service runs the call, at most once."),
        "requestCancellation": (
            "send",
            "cancellations",
            "The projector requests that a run or a call stops.",
        ),
        "cancel": ("receive", "cancellations", "Every worker stops its work for that run or call."),
        "publishRoots": ("send", "roots", "The timekeeper publishes a root at an interval, if it is set."),
        "setAside": (
            "send",
            "deadLetters",
            "The projector publishes a record that is not a frame as a dead letter.",
        ),
    }
    return {
        operation: {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}
        for operation, (action, channel, summary) in described.items()
    }


def _frame_message(name: str, schema: Json) -> Json:
    summary, _, description = schema["description"].partition(" Says: ")
    return _message(name, summary, "FrameHeaders", "ofContext") | {"description": f"Says: {description}"}


def _messages_of_others(schemas: Json) -> Json:
    effects = {
        effect.__name__: _message(
            effect.__name__, schemas[effect.__name__]["description"], "EffectHeaders", "ofContext"
        )
        for effect in (RunInference, CallFunction, Cancel)
    }
    letter = _message(
        "DeadLetter", "A record that is not a frame, and the reason.", "DeadLetterHeaders", "ofDeadLetter"
    )
    return {
        **effects,
        "Root": _message("Root", schemas["Root"]["description"], None, "ofRoot"),
        "DeadLetter": letter | {"contentType": "application/octet-stream"},
    }


def _message(name: str, summary: str, of_headers: str | None, bindings: str) -> Json:
    return {
        "name": name,
        "summary": summary,
        **({"headers": _ref("schemas", of_headers)} if of_headers else {}),
        "payload": _ref("schemas", name),
        "bindings": _ref("messageBindings", bindings),
    }


def _frame_schemas() -> Json:
    """Returns the generated schemas of all frames, and of the values in them."""
    folder = package_data.folder("events") / "schemas"
    schemas: Json = {}
    for name in FRAME_TYPES:
        schema = json.loads((folder / f"{name}.v1.json").read_text(encoding="utf-8"))
        for key in ("$schema", "$id"):
            del schema[key]
        parts = {**schema.pop("$defs", {}), name: schema}
        schemas |= {part: _moved(definition) for part, definition in parts.items()}
    return schemas


def _schemas_of_others() -> Json:
    return {
        **{effect.__name__: _effect_schema(effect) for effect in (RunInference, CallFunction, Cancel)},
        "Root": PublishedRoot.model_json_schema(),
        "DeadLetter": {"description": "The value of the record, unchanged. Also empty if it had none."},
        "FrameHeaders": _headers(_FRAME_HEADERS, required=())
        # A record that says it is encrypted is refused.
        | {"not": {"required": [headers.ENCRYPTION]}},
        "EffectHeaders": _headers(_EFFECT_HEADERS, required=(headers.CE_ID, headers.CE_TYPE)),
        "DeadLetterHeaders": _headers(_REJECTED_HEADERS, required=_REJECTED_HEADERS),
    }


def _effect_schema(effect: type[Effect]) -> Json:
    """Returns the schema of `effects.to_wire`: values of None are omitted, and `effect` names the class."""
    schema = TypeAdapter(effect).json_schema()
    properties: Json = {"effect": {"type": "string", "const": effect.effect}}
    required = ["effect"]
    for name, field in schema["properties"].items():
        match field:
            case {"anyOf": [present, {"type": "null"}]}:
                properties[name] = present
            case _:
                properties[name] = {key: value for key, value in field.items() if key != "title"}
                required.append(name)
    return {
        "type": "object",
        "description": schema["description"],
        "properties": properties,
        "required": required,
    }


# Not components: the official schema accepts no reference for a key.
_KEYS: Json = {
    "ofContext": {
        "type": "string",
        "description": f"The id of the conversation: 1 to {MAX_KEY_BYTES} bytes of UTF-8 without NUL.",
        "minLength": 1,
        "maxLength": MAX_KEY_BYTES,
    },
    "ofRoot": {"type": "string", "description": "The same key for all roots, so that they are in one order."},
    "ofDeadLetter": {"description": "The key of the record, unchanged."},
}
_FRAME_HEADERS: Json = {
    headers.CE_SPECVERSION: {"const": "1.0", "description": "The version of CloudEvents; binary mode."},
    headers.CE_ID: {"description": "The `id` of the frame, if it has one."},
    headers.CE_TYPE: {"description": "The `type` of the frame."},
    headers.CE_SOURCE: {"description": "The publisher's name for itself: a URI reference."},
    headers.CE_SUBJECT: {"description": "The context id again."},
    headers.CE_TIME: {"format": "date-time", "description": "`produced_at`, if it is a valid RFC 3339 time."},
    headers.TRACEPARENT: {
        "description": "W3C trace context. Its trace id is stored with the frame and passed to its effects."
    },
    headers.CAUSATION_ID: {"description": "The id of the frame of this conversation that caused this one."},
    headers.FORWARDED_FROM: {
        "description": "On a copy: `topic:generation:partition:offset` of the record that a publisher wrote."
    },
    headers.ORIGINALLY_LOGGED: {
        "pattern": r"^\d{1,15}$",
        "description": "On a copy: when the broker received that record, in milliseconds since 1970. On a copy of a "
        "replay: when the opening of its conversation was logged.",
    },
    headers.FRAME_ID: {
        "format": "uuid",
        "description": "On a copy of a frame without an id, if its assigned id is not derived from its position.",
    },
}
_EFFECT_HEADERS: Json = {
    headers.CE_ID: {"description": "The `id` of the effect. A repetition has the same id."},
    headers.CE_TYPE: {"description": "The kind of effect."},
    headers.TRACEPARENT: {"description": "W3C trace context of the frame that caused it, if that had one."},
}
_DIGITS = r"^\d+$"
_REJECTED_HEADERS: Json = {
    headers.REJECTED_TOPIC: {"description": "The topic of the record."},
    headers.REJECTED_GENERATION: {"pattern": _DIGITS, "description": "The generation of that topic."},
    headers.REJECTED_PARTITION: {"pattern": _DIGITS, "description": "The partition of the record."},
    headers.REJECTED_OFFSET: {"pattern": _DIGITS, "description": "The offset of the record."},
    headers.REJECTED_CODE: {"description": "The error, as a code for programs."},
    headers.REJECTED_ERROR: {"description": "The error, as a sentence."},
}


def _headers(described: Json, *, required: Any) -> Json:
    """Returns the schema of headers. They are bytes on Kafka; all of these are UTF-8. Other headers are allowed."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} | schema for name, schema in described.items()},
        "required": list(required),
    }


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _moved(schema: Any) -> Any:
    """Returns a part of a schema whose `$defs` are components now. In draft 07 nothing may be beside a `$ref`."""
    match schema:
        case {"$ref": str(name)}:
            others = {key: _moved(value) for key, value in schema.items() if key != "$ref"}
            moved = _ref("schemas", name.removeprefix("#/$defs/"))
            return {"allOf": [moved], **others} if others else moved
        case dict():
            return {key: _moved(value) for key, value in schema.items()}
        case list():
            return [_moved(value) for value in schema]
        case _:
            return schema


def _config_value(name: str, value: str) -> Any:
    if name in LISTS:
        return value.split(",")
    return int(value) if value.lstrip("-").isdigit() else value
