"""A stored frame as JSON, with the same bytes in a page, in NDJSON and in a stream."""

from __future__ import annotations

import orjson

from frameledger_services.store.wanted_frames import PagedFrame

_AS_SPACES = bytes.maketrans(b"\r\n", b"  ")


def written(frame: PagedFrame) -> bytes:
    """Returns a frame with its columns, on one line. `frame` comes last and is the value of the record, byte for byte.

    JSON may have line ends between its tokens, which neither NDJSON nor an event can contain. They become spaces, and
    `raw` then has the unchanged value as a string.
    """
    value = frame.payload or b"null"
    about = {
        "version": frame.version,
        "id": frame.frame_id,
        "type": frame.type,
        "outcome": frame.outcome,
        "reason": frame.reason,
        "logged_at": frame.logged_at,
        "produced_at": frame.produced_at,
        "source": frame.source,
        "run_id": frame.run_id,
        "tool_call_id": frame.tool_call_id,
        "causation_id": frame.causation_id,
        "trace_id": frame.trace_id,
        "place": {"partition": frame.partition, "generation": frame.generation, "offset": frame.offset},
    }
    if b"\n" in value or b"\r" in value:
        about["raw"] = value.decode()
        # Strings in JSON have no line ends.
        value = value.translate(_AS_SPACES)
    return b'%s,"frame":%s}' % (orjson.dumps(about, option=orjson.OPT_UTC_Z)[:-1], value)
