"""The stored form of a state, from which folding continues in another process.

A stored state has the version of the fold that made it. A release with an older fold refuses it, because it could not
keep the information of the newer one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from frameledger.errors import RefusedError
from frameledger.evolve.state import State
from frameledger.ids import Position
from frameledger.values import replace

FOLD_VERSION = 12
"""Raised when the release before cannot read a state of this release, or would fold it differently.

2: ambiguous calls are remembered, and when a turn was stopped. 3: the claims under which the latest attempts of the
open run and of running calls were started. 4: erasures, and the newest runs of the life after one; when messages, tools
or settings changed last. 5: limits and what they count, second inputs and the messages that they hold, the bytes of an
era; who keeps the history elsewhere, and which positions are empty again. 6: a start that names its call is none of a
later one. 7: the functions of the open run that a client answers, and the calls of these. 8: where another program runs
the model, no pending run opens and no message waits for one; a noted run is kept when the open run closes. 9: the
attempt of an announcement that names no run does not count as another announcer. 10: a result whose place was replaced
releases those that waited for its call; a start that rejects its turn rejects the turn's words; an interruption or an
end of a mirror that was superseded does not count. 11: a response stays as it was said if a part of it was written
before the user spoke; an `error` beside a result of null is the result. 12: a worker's deadline for a call that was
interrupted requests no run of its own; any frame may name the mirror whose process publishes it, and is left out after
an erasure that ended that mirror; a `call_id` beside a `tool_call_id` of null names the call.
"""


class StoredStateError(RefusedError, ValueError):
    """This release cannot continue from a stored state of a conversation.

    Remedy: Use the release that wrote it or a newer one, or `frameledger rebuild`. A projector parks the conversation,
    unless a newer release wrote it: then also `frameledger unpark`.
    """


_states = TypeAdapter(State)


def dump(state: State) -> bytes:
    """Returns the state as JSON (ASCII), whose size depends on what is open, not on the length of the conversation."""
    with suppress(PydanticSerializationError):  # for half of a surrogate pair, which UTF-8 cannot encode
        dumped = _states.dump_json(state, exclude_defaults=True)
        if dumped.isascii():
            return b'{"fold":%d,"state":%b}' % (FOLD_VERSION, dumped)
    wire = {"fold": FOLD_VERSION, "state": _states.dump_python(state, mode="json", exclude_defaults=True)}
    return json.dumps(wire, separators=(",", ":")).encode("ascii")


def load(stored: bytes) -> State:
    """Returns the state that `dump` wrote. Raises `StoredStateError` for a newer fold's state and for anything else."""
    wire = _parsed(stored)
    fold = wire.get("fold")
    if not isinstance(fold, int) or isinstance(fold, bool):
        raise StoredStateError("the stored state does not say which fold made it; rebuild the context")
    if fold > FOLD_VERSION:
        raise StoredStateError(
            f"the stored state was made by fold version {fold}, this release knows {FOLD_VERSION}: "
            "upgrade the release, or rebuild the context with this one"
        )
    try:
        state = _states.validate_python(wire.get("state"))
    except ValidationError as error:
        # Without the value that was found there, which may be a user's words.
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoredStateError(
            f"the stored state is damaged at {where or 'its beginning'}: {first['msg']}; rebuild the context"
        ) from None
    return _from_before(state, fold)


def _from_before(state: State, fold: int) -> State:
    """Returns the state that an earlier fold made, with safe values for what that fold did not record."""
    if fold < 4:
        # The latest change of the context: any frame so far may have made it.
        state = replace(state, changed_version=state.version)
    last = Position(state.place.next_position - 1)
    if fold < 5 and last >= 1:
        # The empty positions: any position may be one.
        state = replace(state, place=replace(state.place, fixed=(Position(1), last)))
    return state


def _parsed(stored: bytes) -> dict[str, Any]:
    try:
        wire = json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise StoredStateError(f"the stored state is not JSON: {error}; rebuild the context") from error
    if not isinstance(wire, dict):
        raise StoredStateError("the stored state is not a JSON object; rebuild the context")
    return wire
