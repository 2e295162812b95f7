"""The newest frame of a conversation by which an answer is requested, found by an index however old it is.

Two partial indexes contain such frames: `frames_asking` those of a few types, `frames_of_requests` those that name one
of the gateway's APIs. PostgreSQL uses a partial index only for a query that repeats its condition, which is why the
types are in the text of the statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameledger_services.store.shown_messages import CLIENT

ASKING = ("LLMMessagesAppendFrame", "LLMMessagesUpdateFrame", "LLMRunFrame", "LLMContextFrame")
"""Frames by which clients request an answer."""

SPEAKING = ("TranscriptionFrame", "UserStoppedSpeakingFrame")
"""Frames by which speech requests an answer."""

RESULT = "FunctionCallResultFrame"
"""The frame by which clients settle their calls, and thereby request an answer."""

REQUEST = "chat_completion"
"""The name, in a frame's metadata, of the request for which the frame was published."""


def _listed(types: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in types)


def is_marked(frame: str, *names: str) -> str:
    """Returns the SQL condition that the frame was published for a request of one of these APIs.

    A frame that merely contains such a name does not count: a service's result may be about this API.
    """
    noted = f"json_text({frame}.payload, 'metadata')::json"
    return " OR ".join(f"json_text({noted}, '{name}') IS NOT NULL" for name in names)


NEWEST_ASKING = f"""(
    SELECT max(version) FROM frames WHERE context_id = %(id)s AND outcome = 'applied' AND type IN ({_listed(ASKING)})
)"""
"""SQL: the version of the newest frame of the conversation %(id)s by which a client requested an answer; NULL if there
is none. Reads at most one frame."""


def newest_marked(condition: str, *, after: str = "0") -> str:
    """Returns the SQL query for the version of the newest frame that was published for a request, after a version, and
    meets a condition on `marked`; NULL if there is none."""
    # In the same form as the index.
    return f"""(
        SELECT version
        FROM frames AS marked
        WHERE context_id = %(id)s AND outcome = 'applied' AND type IN ({_listed([*ASKING, RESULT])})
            AND (
                strpos(payload::text, '"{REQUEST}"') > 0
                OR type = '{RESULT}' AND strpos(payload::text, '"{CLIENT}"') > 0
            )
            AND version > {after} AND ({condition})
        ORDER BY version DESC
        LIMIT 1
    )"""
