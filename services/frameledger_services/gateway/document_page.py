"""The OpenAPI document as a page of text, which loads no external files."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from frameledger_services.gateway import text_page
from frameledger_services.gateway.problems import KINDS, PAGES
from frameledger_services.gateway.text_page import prose


def page(document: dict[str, Any]) -> str:
    """Returns the page of an OpenAPI document, with the list of all problems."""
    return text_page.page(
        "Frameledger over HTTP",
        f'<p>{prose(document["info"]["description"])} For programs: <a href="/openapi.json">OpenAPI</a>.</p>'
        f"{''.join(_operations(document))}<h2>Problems</h2><dl>{''.join(_problems())}</dl>",
    )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            [scopes] = operation["security"][0].values()
            yield (
                f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>"
                f"<p>{prose(operation['summary'])} Scope: {', '.join(scopes)}.</p><dl>"
            )
            for parameter in operation.get("parameters", ()):
                about = prose(parameter.get("description", ""))
                yield f"<dt><code>{html.escape(parameter['name'])}</code> ({parameter['in']})</dt><dd>{about}</dd>"
            for status, answer in operation["responses"].items():
                yield f"<dt>{status}</dt><dd>{prose(answer['description'])}</dd>"
            yield "</dl>"


def _problems() -> Iterator[str]:
    for word, kind in KINDS.items():
        yield (
            f'<dt>{kind.status} <a href="{PAGES}{word}">{word}</a></dt>'
            f"<dd>{prose(kind.meaning)} {prose(kind.remedy)}</dd>"
        )
