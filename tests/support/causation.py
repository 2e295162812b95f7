"""The invariants of causation ids: every frame of our services has a cause."""

from __future__ import annotations

from typing import Any

import psycopg

APPLICATION = ("LLMSetToolsFrame", "FunctionCallsStartedFrame")
"""Types of frames that an application publishes on its own through a function service."""


def without_origin(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Returns the frames of services whose causes do not lead to a frame that another publisher sent on its own: each
    with its type, source and outcome, and the type of the frame at which its causes end."""
    return connection.execute(
        """
        SELECT frame.context_id, frame.version, frame.type, frame.source, frame.outcome, first.type
        FROM frames AS frame
        CROSS JOIN LATERAL (
            SELECT * FROM causes(frame.context_id, frame.version) ORDER BY depth DESC LIMIT 1
        ) AS origin
        JOIN frames AS first ON first.context_id = frame.context_id AND first.version = origin.version
        WHERE frame.source ~ %(ours)s
            AND (
                first.causation_id IS NOT NULL
                OR first.source ~ %(ours)s AND first.type <> ALL (%(application)s)
            )
        ORDER BY frame.context_id, frame.version
        """,
        {"ours": _OURS, "application": list(APPLICATION)},
    ).fetchall()


_OURS = "^frameledger/(inference/|functions/|timekeeper|projector|unpark)"


def not_as_promised(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Returns the frames of workers with a wrong cause. The right cause is, for a run, the frame that opened it; for
    the start of a call, the frame that dispatched it; for later frames of the call, its start; and for a cancel, the
    start or an interruption."""
    return connection.execute(
        """
        SELECT frame.context_id, frame.version, frame.type, frame.source, cause.version, cause.type
        FROM frames AS frame
        LEFT JOIN frames AS cause ON cause.context_id = frame.context_id AND cause.frame_id = frame.causation_id
        LEFT JOIN runs AS run ON run.context_id = frame.context_id AND run.run_id = frame.run_id
        LEFT JOIN tool_calls AS call
            ON call.context_id = frame.context_id AND call.tool_call_id = frame.tool_call_id
        WHERE CASE
            WHEN frame.source LIKE 'frameledger/inference/%' THEN run.opened_version = cause.version
            WHEN frame.source NOT LIKE 'frameledger/functions/%' THEN true
            WHEN frame.payload ->> 'waiting' IS NULL AND frame.type = 'FunctionCallInProgressFrame'
                THEN call.dispatched_version = cause.version
            WHEN frame.type = 'FunctionCallCancelFrame'
                THEN cause.type IN ('FunctionCallInProgressFrame', 'InterruptionFrame')
            WHEN frame.type = 'ErrorFrame' THEN cause.type = 'FunctionCallInProgressFrame'
            ELSE cause.type = 'FunctionCallInProgressFrame' AND cause.tool_call_id = frame.tool_call_id
        END IS NOT TRUE
        ORDER BY frame.context_id, frame.version
        """
    ).fetchall()
