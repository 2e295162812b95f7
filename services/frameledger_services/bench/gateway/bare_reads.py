"""The yardstick of reads: a bare ASGI app on uvicorn that sends the same bytes in every response. Run as a process.

Its arguments are the port, the file with the body, and the headers as a JSON list of pairs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from frameledger_services import process
from frameledger_services.bench.gateway.bare_server import serving


async def serve(stopping: asyncio.Event, port: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Serve until a signal."""
    start = {"type": "http.response.start", "status": 200, "headers": headers}

    async def app(_: Any, __: Any, send: Any) -> None:
        await send(start)
        await send({"type": "http.response.body", "body": body})

    async with serving(app, port):
        await stopping.wait()


if __name__ == "__main__":
    port, file, written = sys.argv[1:]
    content = Path(file).read_bytes()
    pairs = [(name.encode(), value.encode()) for name, value in json.loads(written)]
    process.run_service(lambda stopping: serve(stopping, int(port), content, pairs))
