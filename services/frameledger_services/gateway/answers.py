"""Building blocks of responses: JSON, entity tags, and pagination links."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError

REVALIDATED = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie, Accept"}
"""Clients may store a response, but have to revalidate it before each use: erased content is gone from the next
response on."""


def json_answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a value as JSON."""
    return Response(
        json_bytes(value), status_code=status, media_type=JSON, headers={**REVALIDATED, **(headers or {})}
    )


def json_bytes(value: Any) -> bytes:
    """Returns a value as JSON. It may have dataclasses, times and ids."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        # For halves of characters, which stay escapes because UTF-8 cannot encode them, and for integers of any size.
        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def stored_json(body: bytes) -> Response:
    """Returns a response whose JSON is already serialised."""
    return Response(body, media_type=JSON, headers=REVALIDATED)


def opened(about: Mapping[str, Any]) -> bytes:
    """Returns a JSON object without its end, to which serialised members can be appended."""
    return json_bytes(about)[:-1]


def etag(
    version: int, rebuilt: int = 0, parked_version: int | None = None, *, newest: int | None = None
) -> str:
    """Returns the entity tag of a conversation at a version, by default the newest one. A rebuild of the rows changes
    the tag. The tag of an older version changes with the newest version, because the response names the newest version
    too."""
    later = "" if newest is None or newest == version else f".n{newest}"
    state = "" if rebuilt == 0 else f".{rebuilt}"
    parked = "" if parked_version is None else f".parked{parked_version}"
    return f'"{version}{later}{state}{parked}"'


def is_known(request: Request, tag: str) -> bool:
    """Returns whether the client has the entity with this tag (`If-None-Match`)."""
    return is_among(",".join(request.headers.getlist("if-none-match")), tag)


def is_among(known: str, tag: str) -> bool:
    """Returns whether this tag is one of those that a client knows, as `If-None-Match` lists them."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in known.split(","))


def cursor(*keys: Any) -> str:
    """Returns the end of a page as a cursor that is opaque to clients."""
    return base64.urlsafe_b64encode(json_bytes(keys)).decode().rstrip("=")


def keys_of(written: str, count: int) -> list[Any]:
    """Returns the keys that a cursor was made of. Raises `bad-parameter` for any other text."""
    try:
        padded = written + "=" * (-len(written) % 4)
        keys = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or len(keys) != count:
        raise ProblemError("bad-parameter", "cursor: it is not the cursor of a page.")
    return keys


def next_page(request: Request, **parameters: Any) -> dict[str, str]:
    """Returns the header with the address of the next page: that of this request with other parameters."""
    other_parameters = [
        (name, value) for name, value in request.query_params.multi_items() if name not in parameters
    ]
    query = urlencode([*other_parameters, *parameters.items()])
    return {"Link": f'<{request.url.path}?{query}>; rel="next"'}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def as_file(name: str) -> dict[str, str]:
    """Returns the header that makes a browser save a response as a file with this name (RFC 6266)."""
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "_" for one in name)
    encoded = quote(name, safe="")
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"}
