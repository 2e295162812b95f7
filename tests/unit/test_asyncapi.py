"""The AsyncAPI document is valid by the official schema, and describes the records that our code writes."""

import gzip
import hashlib
import json
from copy import deepcopy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
from jsonschema import Draft7Validator
from tests.unit.frame_examples import EXAMPLES
from typer.testing import CliRunner

from frameledger import headers
from frameledger.effects import CallFunction, Cancel, RunInference
from frameledger.frames import FRAME_TYPES
from frameledger.record import LogPosition, Record, forward, outgoing
from frameledger_services.audit.heads import Root
from frameledger_services.cli import application
from frameledger_services.event_log.asyncapi import document
from frameledger_services.event_log.topics import TopicNames, topic_specs
from frameledger_services.projector.outbox_rows import dead_letter_row, effect_row, effect_topics
from frameledger_services.settings import Settings

OFFICIAL = Path(__file__).parents[1] / "support" / "asyncapi" / "schema-3.0.0.json.gz"
SHA256 = "abe96881dbfaad495ccbb6bd8d3fb43ca18a13b9d7564849ccb66f39d5e5b20f"
NAMES = TopicNames(Settings().topic_prefix)
PLACE = LogPosition("llm.frames", 3, 41)

CAUSE = UUID("575e39bf-ef94-4016-ba0a-fab1436d631e")
"""Its text is part of the names of tests, which are the same in every process."""


@cache
def official() -> Draft7Validator:
    return Draft7Validator(json.loads(gzip.decompress(OFFICIAL.read_bytes())))


@cache
def ours() -> dict:
    return document(Settings())


def fits(name: str, payload: object, found: object) -> list[str]:
    """What in a record's payload and headers is not as the message of that name says."""
    message = ours()["components"]["messages"][name]
    said = []
    for part, value in (("payload", payload), ("headers", found)):
        if part in message:
            schema = {"components": ours()["components"], "allOf": [message[part]]}
            said += [error.message for error in Draft7Validator(schema).iter_errors(value)]
    return said


def as_text(found: headers.Headers) -> dict[str, str]:
    return {name: value.decode() for name, value in found}


def references(value: object) -> list[str]:
    match value:
        case {"$ref": str(target), **others}:
            return [target, *references(others)]
        case dict():
            return [target for one in value.values() for target in references(one)]
        case list():
            return [target for one in value for target in references(one)]
        case _:
            return []


def test_the_schema_is_the_official_one():
    assert hashlib.sha256(gzip.decompress(OFFICIAL.read_bytes())).hexdigest() == SHA256


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(topic_prefix="", frames_retention_days=30, topic_min_insync_replicas=2)],
    ids=["defaults", "others"],
)
def test_the_document_is_valid(settings):
    assert [error.message for error in official().iter_errors(document(settings))] == []


@pytest.mark.parametrize(
    "path",
    [
        ("channels",),
        ("channels", "frames", "address"),
        ("channels", "frames", "bindings", "kafka", "topicConfiguration"),
        ("operations", "foldFrames", "action"),
        ("components", "messages", "LLMTextFrame", "payload"),
        ("components", "messageBindings", "ofContext", "kafka", "bindingVersion"),
    ],
    ids="/".join,
)
def test_a_misspelt_key_is_found(path):
    wrong = deepcopy(ours())
    inside = wrong
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1] + "x"] = inside.pop(path[-1])
    assert not official().is_valid(wrong)


def test_a_wrong_schema_of_a_frame_is_found():
    wrong = deepcopy(ours())
    wrong["components"]["schemas"]["LLMTextFrame"]["properties"]["text"]["type"] = "text"
    assert not official().is_valid(wrong)


def test_every_reference_leads_somewhere():
    targets = set(references(ours()))
    assert len(targets) > len(FRAME_TYPES)
    for target in targets:
        found = ours()
        for key in target.removeprefix("#/").split("/"):
            found = found[key]


def test_every_topic_is_a_channel_and_every_frame_a_message():
    settings = Settings(topic_prefix="staging.")
    channels = document(settings)["channels"]
    assert {one["address"] for one in channels.values()} == {spec.name for spec in topic_specs(settings)}
    assert list(channels["frames"]["messages"]) == list(FRAME_TYPES)


def test_every_header_that_we_name_is_described():
    named = {value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)}
    described = {
        name
        for one in ("FrameHeaders", "EffectHeaders", "DeadLetterHeaders")
        for name in ours()["components"]["schemas"][one]["properties"]
    }
    # This one must not be there, and the schema says so.
    assert named - described == {headers.ENCRYPTION}


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_a_published_frame_fits_its_message(frame):
    record = outgoing(
        frame, "call-17", source="test", traceparent=f"00-{'a' * 32}-{'b' * 16}-01", causation_id="f-1"
    )
    assert fits(frame.type, json.loads(record.value), as_text(record.headers)) == []


def test_a_copy_of_a_frame_fits_its_message():
    original = outgoing(EXAMPLES[0], "call-17", source="test")
    copy = forward(
        Record("llm.frames", 1, 7, original.key, original.value, original.headers, 1_700_000_000_000)
    )
    assert {headers.FORWARDED_FROM, headers.ORIGINALLY_LOGGED} <= set(as_text(copy.headers))
    assert fits(EXAMPLES[0].type, json.loads(copy.value), as_text(copy.headers)) == []


def test_what_is_no_frame_does_not_fit():
    assert fits("LLMTextFrame", {"type": "LLMTextFrame"}, {})
    assert fits("LLMTextFrame", {"type": "LLMTextFrame", "text": "a"}, {headers.ENCRYPTION: "aes"})
    assert fits("LLMTextFrame", {"type": "LLMTextFrame", "text": "a"}, {headers.CE_SPECVERSION: "2.0"})


@pytest.mark.parametrize(
    "effect",
    [
        RunInference("e", "call-17", 4, "r", CAUSE),
        RunInference("e", "call-17", 4, "r"),
        CallFunction("e", "call-17", 4, 3, 1, "c", "order", "g", CAUSE),
        CallFunction("e", "call-17", 4, 3, 1, "c", "order", None),
        Cancel("e", "call-17", 4, run_id="r"),
        Cancel("e", "call-17", 4, tool_call_id="c", causation_id=CAUSE),
    ],
    ids=str,
)
def test_an_effect_fits_its_message_on_its_topic(effect):
    topics = effect_topics(NAMES)
    row = effect_row(effect, PLACE, 0, topics[effect.effect])
    of_a_trace = effect_row(effect, PLACE, 0, topics[effect.effect], f"00-{'a' * 32}-{'b' * 16}-01")
    name = type(effect).__name__
    for one in (row, of_a_trace):
        assert fits(name, json.loads(one.value), as_text(one.headers)) == []
    assert [one["address"] for one in ours()["channels"].values() if name in one["messages"]] == [
        row.to_topic
    ]


def test_another_effect_does_not_fit():
    row = effect_row(RunInference("e", "call-17", 4, "r"), PLACE, 0, "llm.inference")
    assert fits("Cancel", json.loads(row.value), as_text(row.headers))
    assert fits("RunInference", json.loads(row.value), {})


def test_a_dead_letter_fits_its_message():
    record = Record("llm.frames", 1, 7, b"call-17", b"{", (("ce_source", b"elsewhere"),))
    row = dead_letter_row(record, "not_json", "it ends too early", NAMES.dead_letters)
    assert fits("DeadLetter", row.value, as_text(row.headers)) == []
    assert fits("DeadLetter", row.value, as_text(record.headers))


def test_a_root_fits_its_message():
    root = Root(b"\xaa" * 32, 3, 1, datetime(2026, 11, 22, tzinfo=UTC), "0.1.0")
    assert fits("Root", root.to_json(), {}) == []
    assert fits("Root", {**root.to_json(), "leaves": "4"}, {})


def test_the_command_prints_the_document(monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_TOPIC_PREFIX", "staging.")
    result = CliRunner().invoke(application(), ["asyncapi"])
    assert result.exit_code == 0
    assert json.loads(result.output) == document(Settings(topic_prefix="staging."))
