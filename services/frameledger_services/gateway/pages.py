"""The web page: `/`, `/c/{conversation}`, `/work` and the files that they load.

The files are public: all data comes from the API. They are read once at startup, and any other name is not found,
whatever it contains.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frameledger_services.gateway import answers
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"

DOOR_SIGN = "README.md"
"""A file for developers, which is not served."""

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with the headers of its response."""

    content: bytes
    media_type: str
    tag: str
    """The entity tag: a hash of the content, so that a file is sent again only when an upgrade has changed it."""


@cache
def files() -> dict[str, PageFile]:
    """Returns the files of the page by their names below `/page/`."""
    return {
        path.relative_to(FOLDER).as_posix(): _read(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.name != DOOR_SIGN
    }


def routes(_: Dependencies) -> list[Route]:
    """Returns the routes. Every conversation has the same page, which reads the conversation's id from its address."""

    async def index(request: Request) -> Response:
        return _answer(request, files()[INDEX])

    async def file(request: Request) -> Response:
        page_file = files().get(request.path_params["name"])
        if page_file is None:
            raise ProblemError("not-found", f"No route matches {request.url.path}.")
        return _answer(request, page_file)

    return [
        Route("/", index, methods=["GET"]),
        Route("/work", index, methods=["GET"]),
        Route("/c/{conversation}", index, methods=["GET"]),
        Route("/page/{name:path}", file, methods=["GET"]),
    ]


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, page_file: PageFile) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": page_file.tag}
    if answers.is_known(request, page_file.tag):
        return Response(status_code=304, headers=headers)
    return Response(page_file.content, headers={**headers, "Content-Type": page_file.media_type})
