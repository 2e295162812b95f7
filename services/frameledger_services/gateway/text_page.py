"""A page of text in the colours of the web page: the routes of the API, and the meaning of a problem."""

from __future__ import annotations

import html
import re

_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> str:
    """Returns text as HTML, with text between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


def page(title: str, body: str) -> str:
    """Returns a page whose title is also its heading; `body` is HTML. It loads only the style sheet of the web page."""
    title = html.escape(title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title>'
        '<link rel="icon" href="/page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/page/style.css">'
        f'</head><body><main class="docs"><h1>{title}</h1>{body}</main></body></html>'
    )
