"""Writes the JSON Schemas and the frame reference, both from the models.

`python -m frameledger.generate` writes `events/schemas/` and `events/frames.md`; with `--check` it writes nothing,
names the files that are out of date and fails if there are any. For developers: it works only in a checkout.
"""

import ast
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import cleandoc, getdoc, getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

from frameledger import upcasters
from frameledger.frames import (
    FRAME_TYPES,
    ControlFrame,
    DataFrame,
    Frame,
    HeardFrame,
    OfRun,
    SystemFrame,
    UninterruptibleFrame,
    Value,
)
from frameledger.frames.base import INT64_MAX

EVENTS = Path(__file__).resolve().parents[1]

GROUPS = {
    "context": "Context",
    "response": "Response",
    "turn": "User turn",
    "calls": "Tools",
    "life": "Life",
}
"""Title of each group of frames, by the module that holds it."""

INTRODUCTION = """\
A frame is one event of a conversation: a JSON object that names its `type`. Each entry below says what the
frame means, who usually publishes it and what it does to the context; `rules.md` has the rules behind it.
Fields that an entry does not list are stored and not read; if a name occurs twice in an object, the last
one counts. An integer has at most 64 bits. A frame with a value that its entry does not allow is rejected;
one of an unknown type, or of a newer version, is stored and changes nothing. The JSON Schemas are in
`schemas/`."""

SECTIONS = ("Says", "Published by", "Effect")


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` compare them. Returns the exit status, 1 if a file was out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m frameledger.generate [--check]", file=sys.stderr)
        return 2
    if EVENTS.name != "events":
        print("The generated files belong to a checkout; this is an installed package.", file=sys.stderr)
        return 2
    outdated = outdated_files()
    if arguments == ["--check"]:
        for name in outdated:
            print(f"out of date: {name}; run python -m frameledger.generate", file=sys.stderr)
        return 1 if outdated else 0
    for name in outdated:
        path = EVENTS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(generated_files()[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def outdated_files() -> list[str]:
    """Returns the generated files that are missing or differ on disk."""
    return [
        name
        for name, text in generated_files().items()
        if not (EVENTS / name).is_file() or (EVENTS / name).read_text(encoding="utf-8") != text
    ]


@cache
def generated_files() -> dict[str, str]:
    """Returns the text of each file, by its path within `events/`."""
    files = {
        f"schemas/{name}.v1.json": json.dumps(schema(frame_type), indent=2, ensure_ascii=False) + "\n"
        for name, frame_type in FRAME_TYPES.items()
    }
    files["frames.md"] = reference()
    return files


def schema(frame_type: type[Frame]) -> dict[str, Any]:
    """Returns the JSON Schema of the frame on the wire: the required and the known fields; others are allowed."""
    generated = frame_type.model_json_schema()
    values = _values_within(frame_type)
    definitions = {
        name: _described(definition, values[name]) for name, definition in generated.pop("$defs", {}).items()
    }
    described = _described(generated, frame_type)
    described["required"] = ["type", *described.get("required", [])]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{frame_type.__name__}.v1.json",
        "title": frame_type.__name__,
    }
    return head | described | ({"$defs": definitions} if definitions else {})


def reference() -> str:
    """Returns the frame reference, in Markdown."""
    return "\n".join(_reference_lines()) + "\n"


def sections(frame_type: type[Frame]) -> dict[str, str]:
    """Returns the text in a frame's docstring under each of `SECTIONS`, on one line. Raises KeyError if one is
    missing."""
    lines = _docstring(frame_type).splitlines()
    found: dict[str, str] = {}
    current = ""
    for line in lines:
        title = next((title for title in SECTIONS if line.startswith(f"{title}: ")), None)
        if title:
            current, line = title, line.removeprefix(f"{title}: ")
        if current:
            found[current] = f"{found.get(current, '')} {line}".strip()
    return {title: found[title] for title in SECTIONS}


def summary(value_type: type[Value]) -> str:
    """Returns the first line of the docstring."""
    return _docstring(value_type).splitlines()[0]


def field_meaning(value_type: type[Value], field: str) -> str:
    """Returns the text below the field, in its class or in the nearest parent that has it. Raises KeyError if there is
    none."""
    for owner in value_type.__mro__:
        if issubclass(owner, Value) and field in _field_texts(owner):
            return _field_texts(owner)[field]
    raise KeyError(f"{value_type.__name__}.{field} has no docstring")


def _reference_lines() -> Iterator[str]:
    yield "# Frames"
    yield ""
    yield "*Made from the models by `python -m frameledger.generate`. Edit the models, not this page.*"
    yield ""
    yield INTRODUCTION
    yield ""
    yield "## Every frame"
    yield ""
    yield from _table(Frame, Frame.model_fields)
    yield ""
    yield "## Frames of a run"
    yield ""
    yield "Frames that an inference publishes have two more:"
    yield ""
    yield from _table(OfRun, _new_fields(OfRun, Frame))
    for module, title in GROUPS.items():
        yield ""
        yield f"## {title}"
        for frame_type in FRAME_TYPES.values():
            if frame_type.__module__ == f"frameledger.frames.{module}":
                yield from _entry(frame_type)
    yield ""
    yield "## Old names and shapes"
    yield ""
    yield "Read as what they mean today, and never written:"
    yield ""
    for step in upcasters.STEPS:
        yield f"- {' '.join(_docstring(step).split())}"


def _entry(frame_type: type[Frame]) -> Iterator[str]:
    says, publisher, effect = sections(frame_type).values()
    yield ""
    yield f"### {frame_type.__name__}"
    yield ""
    yield f"- **Says**: {says}"
    yield f"- **Published by**: {publisher}"
    yield f"- **Effect**: {effect}"
    yield ""
    said_by = f"; shows activity of the {frame_type.said_by}" if frame_type.said_by else ""
    yield f"Class: {_kind(frame_type)}{said_by}."
    shown = _new_fields(frame_type, OfRun if issubclass(frame_type, OfRun) else Frame)
    if shown:
        yield ""
        yield from _table(frame_type, shown)
    for name, value_type in _values_within(frame_type).items():
        yield ""
        yield f"`{name}`: {summary(value_type)}"
        yield ""
        yield from _table(value_type, value_type.model_fields)


def _kind(frame_type: type[Frame]) -> str:
    traits = {
        DataFrame: "data",
        ControlFrame: "control",
        SystemFrame: "system",
        UninterruptibleFrame: "uninterruptible",
        OfRun: "of a run",
    }
    names = [name for trait, name in traits.items() if issubclass(frame_type, trait)]
    if issubclass(frame_type, HeardFrame):
        names.remove("of a run")
    return ", ".join(names) or "none"


def _new_fields(frame_type: type[Frame], known: type[Frame]) -> list[str]:
    return [name for name in frame_type.model_fields if name not in known.model_fields]


def _table(value_type: type[Value], fields: Iterable[str]) -> Iterator[str]:
    properties = value_type.model_json_schema()["properties"]
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name in fields:
        field = value_type.model_fields[name]
        if field.exclude:
            key, shown = name, "Python object"
        else:
            key = field.serialization_alias or name
            shown = _type_name(properties[key])
        if field.is_required():
            default = "required"
        else:
            default = f"`{json.dumps(field.get_default(call_default_factory=True, validated_data={}))}`"
        meaning = " ".join(field_meaning(value_type, name).split())
        yield f"| `{key}` | {shown} | {default} | {meaning} |"


def _type_name(schema: dict[str, Any]) -> str:
    """A schema in words."""
    match schema:
        case {"anyOf": options}:
            return " or ".join(_type_name(option) for option in options)
        case {"$ref": str(target)}:
            return f"`{target.rpartition('/')[2]}`"
        case {"const": constant}:
            return f"`{json.dumps(constant)}`"
        case {"enum": choices}:
            return ", ".join(f"`{json.dumps(choice)}`" for choice in choices)
        case {"type": "array", "items": dict(items)}:
            return f"list of {_type_name(items)}"
        case {"type": "integer" | "number" as name}:
            return f"{name}{_bounds(schema)}"
        case {"type": str(name)}:
            return {"string": "text", "null": "null"}.get(name, name)
        case _:
            return "any JSON"


def _bounds(schema: dict[str, Any]) -> str:
    """Returns the bounds of a number that are narrower than the 64 bits of every integer."""
    match schema:
        case {"minimum": least, "maximum": most} if least > -INT64_MAX and most < INT64_MAX:
            return f" from {least} to {most}"
        case {"minimum": least} if least > -INT64_MAX:
            return f" ≥ {least}"
        case {"exclusiveMinimum": below}:
            return f" > {below}"
    return ""


def _described(schema: dict[str, Any], value_type: type[Value]) -> dict[str, Any]:
    """Returns the schema with our texts in place of the generated titles."""
    names = {field.serialization_alias or name: name for name, field in value_type.model_fields.items()}
    properties = {
        key: {name: part for name, part in field.items() if name != "title"}
        | {"description": " ".join(field_meaning(value_type, names[key]).split())}
        for key, field in schema["properties"].items()
    }
    text = " ".join(_docstring(value_type).split())
    return {"description": text} | {**schema, "description": text, "properties": properties}


def _values_within(frame_type: type[Frame]) -> dict[str, type[Value]]:
    """Returns the values within a frame, by name."""
    names = frame_type.model_json_schema().get("$defs", {})
    return {known.__name__: known for known in _subclasses(Value) if known.__name__ in names}


def _subclasses(parent: type[Value]) -> Iterator[type[Value]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _docstring(documented: Any) -> str:
    text = getdoc(documented)
    if not text:
        raise KeyError(f"{documented.__name__} has no docstring")
    return text


@cache
def _field_texts(value_type: type[Value]) -> dict[str, str]:
    """Returns the text below each field in the body of a class.

    Python drops these strings, and pydantic would read our source at every import to find them.
    """
    return dict(_documented_names(ast.parse(dedent(getsource(value_type))).body[0]))


def _documented_names(definition: ast.stmt) -> Iterator[tuple[str, str]]:
    assert isinstance(definition, ast.ClassDef)
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, cleandoc(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
