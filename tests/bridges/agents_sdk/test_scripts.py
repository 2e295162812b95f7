"""For all operations of the SDK on a session, `get_items()` equals that of `SQLiteSession`, byte for byte."""

import asyncio
import json
from contextlib import closing

from agents import SQLiteSession
from agents.memory import Session
from agents.memory.session_settings import SessionSettings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.bounds import IN_PROCESS
from tests.bridges.agents_sdk.apps import TURNS, App
from tests.support.conversation_in_memory import ConversationInMemory

from frameledger.evolve.state import Runs
from frameledger_services.agents_sdk import FrameledgerRunHooks, FrameledgerSession

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": VALUES}
    ),
    # Items of unknown types.
    st.dictionaries(st.sampled_from(["type", "role", "id", "content", "x", "llm", "message"]), VALUES),
)
MOVES = st.one_of(
    st.tuples(st.just("add"), st.lists(ITEMS, max_size=3)),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("get"), st.sampled_from([None, 0, 1, 3, 50, -1])),
    st.tuples(st.just("limit"), st.sampled_from([None, 1, 3])),
)
FAULTS = st.lists(st.sampled_from([None, None, "lost", "unheard"]), max_size=20)


async def moved(session, move, given_):
    """Returns the result of an operation on a session."""
    if move == "add":
        return await session.add_items(given_)
    if move == "pop":
        return await session.pop_item()
    if move == "clear":
        return await session.clear_session()
    if move == "limit":
        session.session_settings = SessionSettings(limit=given_)
        return None
    return await session.get_items(given_)


def in_order(value):
    """Returns the JSON bytes, with the keys of objects in their order."""
    return json.dumps(value)


@given(st.lists(MOVES, max_size=20), FAULTS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_move_gives_what_the_sdk_s_own_session_gives(moves, faults):
    async def scenario():
        ours = FrameledgerSession("s", ConversationInMemory(faults=list(faults)), within=IN_PROCESS)
        assert isinstance(ours, Session)
        with closing(SQLiteSession("s")) as theirs:
            for move, given_ in [*moves, ("limit", None), ("get", None)]:
                assert in_order(await moved(ours, move, given_)) == in_order(
                    await moved(theirs, move, given_)
                )

    asyncio.run(scenario())


async def played(session, hooks, turns):
    """Returns the items of the session after each turn."""
    app, held = App(session, hooks), []
    for number, (kind, streamed) in enumerate(turns):
        await app.turn(kind, f"secret {number}" if kind == "tripwire" else f"Question {number}", streamed)
        held.append(in_order(await session.get_items()))
    return held


@given(st.lists(st.tuples(st.sampled_from(TURNS), st.booleans()), max_size=4), FAULTS, st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([(kind, False) for kind in TURNS], [], True)
@example([(kind, True) for kind in TURNS], [], True)
def test_runs_leave_what_they_leave_in_the_sdk_s_own_session(turns, faults, with_hooks):
    async def scenario():
        ledger = ConversationInMemory(faults=list(faults))
        ours = FrameledgerSession("s", ledger, within=IN_PROCESS)
        hooks = FrameledgerRunHooks("s", ledger) if with_hooks else None
        held = await played(ours, hooks, turns)
        with closing(SQLiteSession("s")) as theirs:
            assert held == await played(theirs, None, turns)
        if hooks is not None:
            assert await hooks.flush(IN_PROCESS)
        state = ledger.folding.state
        # No open runs and no pending runs are left.
        assert state.runs == Runs()
        assert state.speech.response is None
        assert not state.calls.open

    asyncio.run(scenario())
