"""Conversations as CloudEvents 1.0 in the JSON batch format: one array, an event for each frame, in their order.

`id` is the frame's id, `source` its publisher, `type` its type, `subject` the conversation, and `time` the time at
which its publisher created it, else that of the log. `data` is the frame, byte for byte. The extension `sequence` is
the version, with leading zeros, so that it sorts correctly as text; `causationid` is the id of the frame that caused
this one.
"""

from __future__ import annotations

from datetime import UTC
from urllib.parse import quote

import orjson

from frameledger_services.store.transfer import Exported, ExportedFrame
from frameledger_services.transfer.exporting import Pages, Write

UNNAMED = "frameledger"
"""The source of an event whose frame has none: the format requires a source."""

_IN_A_URI = "/:?#[]@!$&'()*+,;=%~"


class CloudEvents:
    """Writes the events of all conversations as one array; `end` closes it."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._before = b"[\n"

    async def export(self, head: Exported, pages: Pages) -> None:
        """Write the events of one conversation."""
        async for page in pages:
            for frame in page:
                self._write(self._before + event(head.context_id, frame))
                self._before = b",\n"

    def end(self) -> None:
        """Write the end of the array."""
        self._write(b"[]\n" if self._before.startswith(b"[") else b"\n]\n")


def event(context_id: str, frame: ExportedFrame) -> bytes:
    """Returns the event of a frame, as a JSON object."""
    attributes = {
        "specversion": "1.0",
        "id": str(frame.frame_id),
        # It must be a URI reference, but the source of a frame may be any text.
        "source": quote(frame.source or UNNAMED, safe=_IN_A_URI),
        "type": frame.type,
        "subject": context_id,
        "time": (frame.produced_at or frame.logged_at).astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "sequence": f"{frame.version:019d}",
    }
    if frame.causation_id is not None:
        attributes["causationid"] = str(frame.causation_id)
    return orjson.dumps(attributes)[:-1] + b',"data":' + frame.payload + b"}"
