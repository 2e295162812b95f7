"""The names of spans and attributes follow the conventions, are defined in one module, and are all used."""

import ast
from pathlib import Path

from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    messaging_attributes,
    server_attributes,
    session_attributes,
)
from opentelemetry.semconv.schemas import Schemas

from frameledger_services.telemetry import names

SERVICES = Path(names.__file__).parents[1]
OURS = "frameledger."
STANDARD = {
    value
    for module in (
        error_attributes,
        gen_ai_attributes,
        messaging_attributes,
        server_attributes,
        session_attributes,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
# In the conventions for models at the revision of `names`, and not yet in OpenTelemetry's package for Python.
NEWER = {"gen_ai.usage.cache_write.input_tokens"}


def ours() -> dict[str, str]:
    return {name: value for name, value in vars(names).items() if name.isupper()}


def test_the_release_of_the_conventions_is_the_one_that_the_names_were_read_in():
    assert names.CONVENTIONS == "1.44.0"
    assert f"https://opentelemetry.io/schemas/{names.CONVENTIONS}" in {one.value for one in Schemas}


def test_an_attribute_is_of_the_conventions_or_says_that_it_is_ours():
    attributes = {value for value in ours().values() if "." in value} - {names.CONVENTIONS}
    assert attributes - {one for one in attributes if one.startswith(OURS)} - NEWER <= STANDARD
    assert not NEWER & STANDARD, "known by now: take it off the list"


def test_every_name_is_used_and_none_is_written_elsewhere():
    used, written = set(), []
    values = {value for value in ours().values() if "." in value}
    for path in SERVICES.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.name == "names.py" and path.parent.name == "telemetry":
            continue
        # To parse them all takes a second.
        if "names." not in source and not any(value in source for value in values):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Attribute(value=ast.Name(id="names"), attr=name):
                    used.add(name)
                case ast.Constant(value=str(text)) if text in values:
                    written.append(f"{path.name}:{node.lineno}: {text}")
    assert written == []
    assert ours().keys() - used == set()
