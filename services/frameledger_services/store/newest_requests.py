"""The newest frame of a conversation by which an answer is requested, found by index, however long ago it was.

Two partial indexes hold the frames that may be one, by type: `frames_asking` those of a few types, `frames_of_requests`
those that name one of the gateway's APIs. PostgreSQL uses an index only for a query that repeats its condition, which
is why the types stand in the text of the statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameledger_services.store.shown_messages import CLIENT

ASKING = ("LLMMessagesAppendFrame", "LLMMessagesUpdateFrame", "LLMRunFrame", "LLMContextFrame")
"""Frames by which clients request an answer."""

SPEAKING = ("TranscriptionFrame", "UserStoppedSpeakingFrame")
"""Frames by which speech requests an answer."""

RESULT = "FunctionCallResultFrame"
"""The frame by which clients settle their calls, and with these request an answer."""

REQUEST = "chat_completion"
"""The name, in a frame's metadata, of the request that the frame was published for."""


def is_marked(frame: str, *names: str) -> str:
    """Returns the SQL condition that the frame was published for a request of one of these APIs.

    A frame that only contains such a name is not: a service's result may be about this API.
    """
    noted = f"json_text({frame}.payload, 'metadata')::json"
    return " OR ".join(f"json_text({noted}, '{name}') IS NOT NULL" for name in names)


def newest_asking(*types: str) -> str:
    """Returns the SQL query of the version of the newest applied frame of these types in the conversation %(id)s; NULL
    if there is none. At most one frame of each type is read."""
    assert set(types) <= {*ASKING, *SPEAKING}
    return _newest(types, _ASKING_INDEX)


def newest_marked(types: Sequence[str], names: Sequence[str], *, after: str = "0") -> str:
    """The same of frames that were published for a request of one of these APIs, behind a version."""
    assert {*types} <= {*ASKING, RESULT}
    assert {*names} <= {REQUEST, CLIENT}
    return _newest(types, f"{_REQUESTS_INDEX} AND version > {after} AND ({is_marked('of_type', *names)})")


def _newest(types: Sequence[str], condition: str) -> str:
    return f"""(
        SELECT max(newest.version)
        FROM unnest(ARRAY[{_listed(types)}]) AS asked (type)
        CROSS JOIN LATERAL (
            SELECT version
            FROM frames AS of_type
            WHERE context_id = %(id)s AND of_type.type = asked.type AND {condition}
            ORDER BY version DESC
            LIMIT 1
        ) AS newest
    )"""


def _listed(types: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in types)


# As the indexes have them.
_ASKING_INDEX = f"outcome = 'applied' AND type IN ({_listed([*ASKING, *SPEAKING])})"
_REQUESTS_INDEX = f"""outcome = 'applied' AND type IN ({_listed([*ASKING, RESULT])})
    AND (strpos(payload::text, '"{REQUEST}"') > 0 OR strpos(payload::text, '"{CLIENT}"') > 0)"""
