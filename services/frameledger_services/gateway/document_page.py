"""The OpenAPI document as a page of text, which loads no external files."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from frameledger_services.gateway import text_page
from frameledger_services.gateway.media_types import EVENT_STREAM, JSON
from frameledger_services.gateway.parameters import INT64_MAX
from frameledger_services.gateway.problems import KINDS, PAGES
from frameledger_services.gateway.routes import ALWAYS
from frameledger_services.gateway.text_page import prose

BEGIN = (
    "`GATEWAY` in the examples is the address of this gateway, and `TOKEN` a token of `frameledger token new` with the "
    "scope of the route. A gateway without tokens needs none, and serves its own machine only."
)


def page(document: dict[str, Any]) -> str:
    """Returns the page of an OpenAPI document, with the list of all problems."""
    always = ", ".join(_problem(word) for word in ALWAYS)
    return text_page.page(
        "Frameledger over HTTP",
        f'<p>{prose(document["info"]["description"])} For programs: <a href="/openapi.json">OpenAPI</a>, '
        f'<a href="/schemas/">JSON Schemas of all frames</a>.</p><p>{prose(BEGIN)}</p>'
        f"<p>Every route may return these problems: {always}. Each route below lists its further problems.</p>"
        f"<ul>{''.join(_index(document))}</ul>{''.join(_operations(document))}"
        f"<h2>Problems</h2><dl>{''.join(_problems())}</dl>",
    )


def takes(schema: Mapping[str, Any]) -> str:
    """Returns a short description of the values of a schema."""
    if "anyOf" in schema:
        return " or ".join(takes(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one if isinstance(one, str) else json.dumps(one)}`" for one in schema["enum"])
    kind, least, most = schema.get("type"), schema.get("minimum"), schema.get("maximum")
    match kind:
        case "integer" if most == INT64_MAX:
            return f"integer, at least {least}"
        case "integer" if most is not None:
            return f"integer from {least} to {most}"
        case "boolean":
            return "`true` or `false`"
        case "string" if schema.get("format") == "date-time":
            return "time such as `2026-05-01T12:00:00Z`"
        case "string":
            longest = schema.get("maxLength")
            return "text" if longest is None else f"text of 1 to {longest} characters"
        case "array" if most_items := schema.get("maxItems"):
            return f"up to {most_items}, each {takes(schema['items'])}"
        case list():
            return " or ".join(kind)
    return "any JSON" if kind is None else str(kind)


def example(path: str, method: str, operation: Mapping[str, Any]) -> str:
    """Returns a command that sends a request to this operation."""
    examples = {one["name"]: one for one in operation["parameters"] if "example" in one}
    query = [f"{name}={_quoted(one)}" for name, one in examples.items() if one["in"] == "query"]
    for name, parameter in examples.items():
        path = path.replace(f"{{{name}}}", _quoted(parameter))
    address = f"$GATEWAY{path}{'?' if query else ''}{'&'.join(query)}"
    words = ["curl", *_OPTIONS.get(method, ())]
    if any(EVENT_STREAM in answer.get("content", {}) for answer in operation["responses"].values()):
        words.append("-N")
    words += ['-H "Authorization: Bearer $TOKEN"', f'"{address}"']
    content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    if "example" in content:
        words += [f"-H 'Content-Type: {JSON}'", f"-d '{json.dumps(content['example'])}'"]
    return " ".join(words)


_OPTIONS = {"head": ("-I",), "delete": ("-X DELETE",), "post": ("-X POST",)}


def _quoted(parameter: Mapping[str, Any]) -> str:
    return quote(str(parameter["example"]), safe="")


def _index(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield (
                f'<li><a href="#{operation["operationId"]}"><code>{method.upper()} {html.escape(path)}</code></a> '
                f"{prose(operation['summary'])}</li>"
            )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            [scopes] = operation["security"][0].values()
            yield (
                f'<h2 id="{operation["operationId"]}"><code>{method.upper()} {html.escape(path)}</code></h2>'
                f"<p>{prose(operation['summary'])} Scope: {', '.join(scopes)}.</p>"
                f"<pre><code>{html.escape(example(path, method, operation))}</code></pre><dl>"
            )
            yield from map(_parameter, operation["parameters"])
            yield from _body(document, operation.get("requestBody", {}))
            for status, answer in operation["responses"].items():
                yield from _answer(status, answer["description"], operation["summary"])
            yield "</dl>"


def _parameter(parameter: Mapping[str, Any]) -> str:
    need = ", required" if parameter["required"] else ""
    return (
        f"<dt><code>{html.escape(parameter['name'])}</code> ({parameter['in']}{need}): "
        f"{prose(takes(parameter['schema']))}</dt><dd>{prose(parameter['description'])}</dd>"
    )


def _body(document: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """Returns the description of the body, and of its fields if it is one object."""
    content = body.get("content", {})
    if not content:
        return
    schema = content[JSON]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    about = prose(schema.get("description", "An object with these fields."))
    yield f"<dt>Body: <code>{'</code> or <code>'.join(content)}</code></dt><dd>{_linked(about)}</dd>"
    for name, field in schema.get("properties", {}).items():
        need = " (required)" if name in schema.get("required", ()) else ""
        about = prose(field.get("description", ""))
        yield f"<dd><code>{html.escape(name)}</code>{need}: {prose(takes(field))}. {about}</dd>"


def _linked(about: str) -> str:
    return about.replace("its schema", '<a href="/schemas/">its schema</a>')


def _answer(status: str, description: str, summary: str) -> Iterator[str]:
    words = description.split(", ")
    if not all(word in KINDS for word in words):
        # The summary of the route is not repeated.
        yield f"<dt>{status}</dt><dd>{'JSON.' if description == summary else prose(description)}</dd>"
    elif own := [word for word in words if word not in ALWAYS]:
        yield f"<dt>{status}</dt><dd>{', '.join(map(_problem, own))}</dd>"


def _problem(word: str) -> str:
    return f'<a href="{PAGES}{word}">{word}</a>'


def _problems() -> Iterator[str]:
    for word, kind in KINDS.items():
        yield f"<dt>{kind.status} {_problem(word)}</dt><dd>{prose(kind.meaning)} {prose(kind.remedy)}</dd>"
