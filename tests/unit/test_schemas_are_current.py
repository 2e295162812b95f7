"""The JSON Schemas and the frame reference match the models."""

import json

import jsonschema
import pytest
from tests.unit.frame_examples import EXAMPLES

from frameledger import generate
from frameledger.frames import FRAME_TYPES, Frame, encode_frame


def test_the_files_on_disk_are_what_the_models_generate() -> None:
    assert generate.outdated_files() == []


def test_each_frame_has_a_schema_and_each_schema_a_frame() -> None:
    on_disk = {path.name for path in (generate.EVENTS / "schemas").glob("*.json")}
    assert on_disk == {f"{name}.v1.json" for name in FRAME_TYPES}


@pytest.mark.parametrize("frame_type", FRAME_TYPES.values(), ids=lambda frame_type: frame_type.__name__)
def test_a_schema_is_valid_and_describes_every_field(frame_type: type[Frame]) -> None:
    schema = generate.schema(frame_type)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"{frame_type.__name__}.v1.json"
    for described in [schema, *schema.get("$defs", {}).values()]:
        assert all(field["description"] for field in described["properties"].values())


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_what_is_encoded_fits_its_schema(frame: Frame) -> None:
    validator = jsonschema.Draft202012Validator(generate.schema(type(frame)))
    assert list(validator.iter_errors(json.loads(encode_frame(frame)))) == []


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("LLMTextFrame", {"type": "LLMTextFrame"}),
        ("LLMTextFrame", {"type": "TextFrame", "text": "a"}),
        ("LLMTextFrame", {"text": "a"}),
        (
            "FunctionCallResultFrame",
            {"type": "FunctionCallResultFrame", "function_name": "f", "tool_call_id": "c"},
        ),
        ("LLMRunFrame", {"type": "LLMRunFrame", "id": "a\x00b"}),
        ("LLMRunFrame", {"type": "LLMRunFrame", "v": 2}),
    ],
)
def test_what_is_no_frame_does_not_fit_the_schema(name: str, wire: dict[str, object]) -> None:
    validator = jsonschema.Draft202012Validator(generate.schema(FRAME_TYPES[name]))
    assert not validator.is_valid(wire)


@pytest.mark.parametrize("frame_type", FRAME_TYPES.values(), ids=lambda frame_type: frame_type.__name__)
def test_the_reference_says_of_each_frame_what_it_means_who_publishes_it_and_what_it_does(
    frame_type: type[Frame],
) -> None:
    said = generate.sections(frame_type)
    assert all(said.values())
    entry = (
        generate.generated_files()["frames.md"].split(f"\n### {frame_type.__name__}\n")[1].split("\n### ")[0]
    )
    assert said["Effect"] in entry


def test_what_memory_alone_holds_is_in_no_schema() -> None:
    started = generate.schema(FRAME_TYPES["FunctionCallsStartedFrame"])["$defs"]["FunctionCallFromLLM"]
    result = generate.schema(FRAME_TYPES["FunctionCallResultFrame"])["$defs"]["FunctionCallResultProperties"]
    assert "context" not in started["properties"]
    assert "on_context_updated" not in result["properties"]


def test_check_names_a_file_that_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "generated_files", lambda: {"frames.md": "something else"})
    assert generate.main(["--check"]) == 1
    assert "out of date: frames.md" in capsys.readouterr().err


def test_an_argument_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err
