"""The AsyncAPI 3.0 document of the log: each topic as a channel, each kind of record as a message.

It is made from the definitions that the services use, so it describes this release: payloads are the generated JSON
Schemas of the frames, the dataclasses of the effects and the model of a published root; headers, addresses and
configuration are those of `frameledger.headers` and `topics`. Actions are those of our services: what they receive,
your programs send. No server is listed, because the broker's address depends on the reader.

The schemas use only what JSON Schema has had since draft 07, which is the format that AsyncAPI assumes.
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
"""Configuration of a topic that is a list in the Kafka binding; Kafka separates its values by commas."""


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
            "publish frames; the projector folds them into PostgreSQL, and publishes effects: what is to be done. "
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
        "The frames of all conversations, each in the partition of its key and in one order. They are the only truth: "
        "every table can be made of them again. A frame of an unknown type, or of a newer version, is stored and "
        "changes nothing."
    )
    described = {
        "frames": (names.frames, frame_names, frames),
        "inference": (names.inference, ["RunInference"], "Runs of a model that are requested."),
        "functionCalls": (names.function_calls, ["CallFunction"], "Function calls that are requested."),
        "cancellations": (names.cancellations, ["Cancel"], "Runs and calls that are to stop now."),
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
            "Services publish what models say, what functions return, and what is overdue.",
        ),
        "requestInference": ("send", "inference", "The projector asks for an answer of a model."),
        "runInference": ("receive", "inference", "An inference service answers, each run once."),
        "requestFunctionCalls": ("send", "functionCalls", "The projector asks for a call of a function."),
        "callFunctions": ("receive", "functionCalls", "A function service runs the call, at most once."),
        "requestCancellation": ("send", "cancellations", "The projector asks for a run or a call to stop."),
        "cancel": ("receive", "cancellations", "Every worker stops what it has of it."),
        "publishRoots": ("send", "roots", "The timekeeper publishes a root at an interval, if it is set."),
        "setAside": ("send", "deadLetters", "The projector sets aside a record that is not a frame."),
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
    """The generated schemas of all frames, and of the values in them."""
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
        "DeadLetter": {"description": "The value of the record, whatever it is. Empty also if it had none."},
        "FrameHeaders": _headers(_FRAME_HEADERS, required=())
        # A record that says it is encrypted is refused.
        | {"not": {"required": [headers.ENCRYPTION]}},
        "EffectHeaders": _headers(_EFFECT_HEADERS, required=(headers.CE_ID, headers.CE_TYPE)),
        "DeadLetterHeaders": _headers(_REJECTED_HEADERS, required=_REJECTED_HEADERS),
    }


def _effect_schema(effect: type[Effect]) -> Json:
    """The schema of `effects.to_wire`: values of None are left out, and `effect` names the class."""
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


# Not components: the official schema takes no reference for a key.
_KEYS: Json = {
    "ofContext": {
        "type": "string",
        "description": f"The id of the conversation: 1 to {MAX_KEY_BYTES} bytes of UTF-8 without NUL.",
        "minLength": 1,
        "maxLength": MAX_KEY_BYTES,
    },
    "ofRoot": {"type": "string", "description": "The same for all, so that they have one order."},
    "ofDeadLetter": {"description": "The key of the record, whatever it is."},
}
_FRAME_HEADERS: Json = {
    headers.CE_SPECVERSION: {"const": "1.0", "description": "The version of CloudEvents; binary mode."},
    headers.CE_ID: {"description": "The `id` of the frame, if it has one."},
    headers.CE_TYPE: {"description": "The `type` of the frame."},
    headers.CE_SOURCE: {"description": "The publisher, as it names itself: a URI reference."},
    headers.CE_SUBJECT: {"description": "The context id again."},
    headers.CE_TIME: {"format": "date-time", "description": "`produced_at`, if it is a time of RFC 3339."},
    headers.TRACEPARENT: {
        "description": "W3C trace context. Its trace id is stored with the frame, and what the frame causes has it too."
    },
    headers.CAUSATION_ID: {"description": "The id of the frame of this conversation that caused this one."},
    headers.FORWARDED_FROM: {
        "description": "On a copy: `topic:generation:partition:offset` of the record that a publisher wrote."
    },
    headers.ORIGINALLY_LOGGED: {
        "pattern": r"^\d{1,15}$",
        "description": "On a copy: when the broker took that record, in milliseconds since 1970. A copy of a replay "
        "says when the opening of its conversation was logged.",
    },
    headers.FRAME_ID: {
        "format": "uuid",
        "description": "On a copy of a frame without an id, if the id that it got does not follow from its place.",
    },
}
_EFFECT_HEADERS: Json = {
    headers.CE_ID: {"description": "The `id` of the effect. A repetition has the same."},
    headers.CE_TYPE: {"description": "The kind of effect."},
    headers.TRACEPARENT: {"description": "W3C trace context of the frame that caused it, if that had one."},
}
_DIGITS = r"^\d+$"
_REJECTED_HEADERS: Json = {
    headers.REJECTED_TOPIC: {"description": "The topic of the record."},
    headers.REJECTED_GENERATION: {"pattern": _DIGITS, "description": "The generation of that topic."},
    headers.REJECTED_PARTITION: {"pattern": _DIGITS, "description": "The partition of the record."},
    headers.REJECTED_OFFSET: {"pattern": _DIGITS, "description": "The offset of the record."},
    headers.REJECTED_CODE: {"description": "What is wrong with it, for programs."},
    headers.REJECTED_ERROR: {"description": "What is wrong with it, in a sentence."},
}


def _headers(described: Json, *, required: Any) -> Json:
    """Headers are bytes on Kafka; all of these are UTF-8. Others are kept."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} | schema for name, schema in described.items()},
        "required": list(required),
    }


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _moved(schema: Any) -> Any:
    """A part of a schema whose `$defs` are components now. In draft 07 nothing may be beside a `$ref`."""
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
