"""The open state of a conversation: everything that the next frame can depend on, and nothing else.

The messages are not here. A store keeps them as rows and writes the changes (`changes`); the state only has the
positions of messages that may still change. Everything is frozen and nested by topic, so that a token replaces a few
small values, whatever the length of the conversation.

Names of fields are stored (`frameledger.stored`) and never change; names of classes may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from frameledger.evolve.text import Text
from frameledger.fold_settings import ANSWERED_ELSEWHERE
from frameledger.frames.base import SecondInput
from frameledger.ids import Attempt, ContextId, Era, GroupId, Position, RunId, ToolCallId, Version
from frameledger.values import value

Stage = Literal["announced", "queued", "dispatched", "running"]


@value
class MessageCursor:
    """Where the next message goes. A position is assigned once and never reused within its era.

    `gaps` are the positions that are empty again, as ranges in ascending order. At most `gaps.GAPS_REMEMBERED` are
    kept: for the range `fixed`, from one position to another, it is no longer known which positions have a message.
    `bytes` is the size of everything that was written in this era (R8.4).
    """

    era: Era = Era(1)
    next_position: Position = Position(1)
    gaps: tuple[tuple[Position, Position], ...] = ()
    fixed: tuple[Position, Position] | None = None
    bytes: int = 0


@value
class RequestParameters:
    """Parameters of a request to the model, besides the messages; whether the context is a recording, or has ended; its
    limits, by name; and the mirror that keeps its history, None if that is kept here (RA5.mirror)."""

    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompt_caching: bool | None = None
    skip_tts: bool | None = None
    recording: bool = False
    ended: bool = False
    limits: Mapping[str, int | float] = field(default_factory=dict)
    mirror: str | None = None

    @property
    def is_answered_elsewhere(self) -> bool:
        """Whether no service here runs the model: requests are noted, and runs do not open (R4.5)."""
        return self.recording or self.settings.get(ANSWERED_ELSEWHERE) is True


@value
class Turn:
    """An open user turn (R1): the user still speaks, or has stopped (first at `stopped_version`) and final words are
    pending. `second_input` is that of its start (R7)."""

    opened_version: Version
    speaking: bool = True
    words: Text | None = None
    interim_pending: bool = False
    stopped_version: Version | None = None
    second_input: SecondInput | None = None

    @property
    def holds_floor(self) -> bool:
        """Whether a run that a result requests is deferred to the end of this turn (R4.1)."""
        return self.speaking or self.words is not None or self.interim_pending


@value
class RejectedTurn:
    """A user turn that its own start rejected (R7.3), until it is stopped and its final words have arrived: those are
    rejected too. Its content is not kept."""

    opened_version: Version
    speaking: bool = True
    words_pending: bool = True


@value
class Response:
    """An open response. `run_id` is the run that it answers, if any.

    `fenced`: its frames name their run and attempt; those of a plain response name none, even if it answers the open
    run implicitly (RA5.adopt). A response that answers no run counts as a run by itself, `counts_as`: the one that was
    noted last, or one of its own (RA5.counted). `stays`: a part of it was written before the user spoke or the history
    was replaced, so that `heard_text` no longer corrects any of it (R6.7).
    """

    opened_version: Version
    run_id: RunId | None = None
    fenced: bool = False
    text: Text | None = None
    counts_as: RunId | None = None
    stays: bool = False


@value
class Thought:
    """An open thought; `llm` is None for a thought that stays out of the context.

    `run_id` is the run that its frames name, `answers` the run that it belongs to.
    """

    llm: str | None
    run_id: RunId | None = None
    answers: RunId | None = None
    text: Text | None = None


@value
class Speech:
    """The open response and thought, and the positions of the last response.

    `said` has the positions of the last response's text as long as `heard_text` may still correct it (R6.7); None once
    the user has spoken or the history was replaced since.
    """

    response: Response | None = None
    thought: Thought | None = None
    said: tuple[Position, ...] | None = None
    bot_since: Version | None = None


@value
class Announced:
    """What announced a call: the run and attempt that the announcement names, or else the response that was open."""

    run_id: RunId | None = None
    attempt: Attempt = Attempt(0)
    response: Version | None = None
    group_id: GroupId | None = None
    sequential: bool = False
    alone: bool = False


@value
class Running:
    """The options with which a call started, which it keeps. `position` is that of its tool message, in `era`; None if
    it has none, or a client rewrote it."""

    since: Version
    synchronous: bool
    era: Era
    position: Position | None
    call_attempt: Attempt | None = None
    worker: str | None = None
    safe_to_retry: bool = False
    waiting: bool = False
    interrupted: bool = False
    claim: str | None = None


@value
class Call:
    """An open call. (`requested_version`, `ordinal`) is its identity: an id may occur again after it settled.

    Stages: *announced* (until the End of its run), *queued* (committed, after another sequential call), *dispatched* (a
    worker may start it), *running* (`running` is set).

    `by_client`: a client answers it, and no worker starts it (RA5.client). Its `arguments` are kept until it runs.
    """

    tool_call_id: ToolCallId
    function_name: str
    requested_version: Version
    ordinal: int
    group: str
    stage: Stage
    announced: Announced | None = None
    running: Running | None = None
    by_client: bool = False
    arguments: Any = None

    def in_stage(self, stage: Stage, running: Running | None = None) -> Call:
        """Returns the call in its next stage."""
        return Call(
            self.tool_call_id,
            self.function_name,
            self.requested_version,
            self.ordinal,
            self.group,
            stage,
            self.announced,
            running,
            self.by_client,
            self.arguments,
        )


@value
class Group:
    """Calls whose results request one run together (R3.6).

    `answered`: one of its settled calls had a result. The two waits: the run of a result is still to be requested, when
    no synchronous call, or no other call at all, of the group is open any more. The newest such result arrived in the
    era `waits_in`.
    """

    names: tuple[GroupId, ...] = ()
    answered: bool = False
    waits_for_synchronous: bool = False
    waits_for_all: bool = False
    waits_in: Era = Era(0)

    @property
    def waits(self) -> bool:
        return self.waits_for_synchronous or self.waits_for_all


@value
class Ambiguous:
    """A call that may or may not have taken effect, and that a person may still resolve."""

    tool_call_id: ToolCallId
    requested_version: Version
    ordinal: int


@value
class Calls:
    """All open calls and their groups. `barred` are tombstones: the newest ids that may not start (RA5.barred).
    `settled` are the newest settled ids, `ambiguous` the newest ambiguous calls that are not resolved."""

    open: Mapping[ToolCallId, Call] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    barred: tuple[ToolCallId, ...] = ()
    settled: tuple[ToolCallId, ...] = ()
    ambiguous: tuple[Ambiguous, ...] = ()


@value
class Run:
    """The open run. `attempt` is 0 until a start frame that names the run is folded; `positions` are the messages that
    its attempts appended in this era, which the next attempt retracts; `adopted`: a response that names no run answers
    it (RA5.adopt); `claim` is that of the latest start; `client_functions` are those of the functions offered to its
    model that a client answers (RA5.client)."""

    run_id: RunId
    asked_version: Version
    opened_version: Version
    attempt: Attempt = Attempt(0)
    adopted: bool = False
    positions: tuple[Position, ...] = ()
    claim: str | None = None
    client_functions: tuple[str, ...] = ()

    @property
    def untouched(self) -> bool:
        """Whether nothing of it was folded yet."""
        return self.attempt == 0 and not self.adopted

    def in_attempt(self, attempt: Attempt, claim: str | None) -> Run:
        """Returns the run in its next attempt, which has appended nothing yet."""
        return Run(
            self.run_id,
            self.asked_version,
            self.opened_version,
            attempt,
            self.adopted,
            (),
            claim,
            self.client_functions,
        )


@value
class PendingRun:
    """A run that was requested and has not started (R4.3). Its id is that of the first request. `held` are messages of
    inputs that are written when it opens (R7.5)."""

    run_id: RunId
    asked_version: Version
    held: tuple[Mapping[str, Any], ...] = ()


@value
class Runs:
    """The open run, the pending one (`wanted`), and whether one is deferred to the end of the user's turn or of the
    bot's speech (R4.1). `noted` is the latest request for a run that does not open here (R4.5), until an answer
    arrives.
    """

    open: Run | None = None
    wanted: PendingRun | None = None
    owed_to_turn: bool = False
    owed_to_bot: bool = False
    noted: RunId | None = None


@value
class Pace:
    """The counts for limits (R8). `rounds`: the runs, and answers that name none, that announced calls since the latest
    input; `round_of` is the version at which the newest of them opened, so that its attempts count once. `frames`: the
    limited ones in this `second` of the log."""

    rounds: int = 0
    round_of: Version | None = None
    second: int = 0
    frames: int = 0


@value
class Erased:
    """The latest erasure of the context (RA5.erase): the version at which its current life began, and the newest closed
    runs and newest mirrors of that life. A frame that names another run or another mirror belongs to an erased life
    (RA5.lives)."""

    version: Version
    runs: tuple[RunId, ...] = ()
    mirrors: tuple[str, ...] = ()


# Shared by all conversations without them, since values never change. One for each would be 430 of the 1,400 bytes of a
# state of a few frames in the cache of a projector.
_NO_TERMS = RequestParameters()
_NO_CALLS = Calls()


@value
class State:
    """A context between two frames. `version` is the number of folded frames, including those that were erased; the
    first is 1. `changed_version` is the latest at which a message, a tool or a setting changed (RA5.expected)."""

    context_id: ContextId
    version: Version = Version(0)
    place: MessageCursor = MessageCursor()
    terms: RequestParameters = field(default_factory=lambda: _NO_TERMS)
    turn: Turn | None = None
    speech: Speech = Speech()
    calls: Calls = field(default_factory=lambda: _NO_CALLS)
    runs: Runs = Runs()
    erased: Erased | None = None
    changed_version: Version = Version(0)
    pace: Pace = Pace()
    rejected_turn: RejectedTurn | None = None
