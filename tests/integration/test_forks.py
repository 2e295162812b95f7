"""Forks: an earlier version continued as a new conversation, compared with the fold of the frames up to it."""

import asyncio
import json

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.laws.strategies import random_conversation
from tests.support.batches import Log, project, value_of
from tests.support.projecting import make_topics, projecting, settings_of_its_own  # noqa: F401  # a fixture
from tests.unit.rules import dsl
from tests.unit.rules.dsl import ask, begin, committed, flat, result
from typer.testing import CliRunner

from frameledger import chain
from frameledger.evolve import State
from frameledger.evolve.state import Runs, Speech
from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import (
    EndFrame,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMEnablePromptCachingFrame,
    LLMMessagesAppendFrame,
    LLMSetToolsFrame,
    UserStartedSpeakingFrame,
    encode_frame,
)
from frameledger.record import MAX_VALUE_BYTES, decode
from frameledger.values import replace
from frameledger_services.audit import verify
from frameledger_services.cli import application
from frameledger_services.client import Client, ForkRefusedError, NoSuchVersionError, SyncClient, forking
from frameledger_services.store.contexts import NoSuchContextError

SEEDS = range(24)
NEW = "fork"


def prefixes(values, context_id):
    """Returns the context with which a fork of each version has to begin: the fold of the frames up to it, with running
    calls settled as by an end, and without open turns and answers."""
    folding = Folding(Conversation.new(context_id))
    yield _settled(folding)
    for value in values:
        if folding.step(decode(value)) is not None:
            yield _settled(folding)


def _settled(folding):
    conversation = folding.conversation()
    # Open turns and answers, and inputs that wait for the end of an answer, are in no context yet. In a mirror an end
    # writes nothing, but a fork is no mirror.
    terms = replace(conversation.state.terms, mirror=None)
    nothing_said = replace(conversation.state, turn=None, speech=Speech(), runs=Runs(), terms=terms)
    ended = fold([EndFrame()], replace_state(conversation, nothing_said))
    return ended.context.to_wire(), conversation.state.terms


def replace_state(conversation: Conversation, state: State) -> Conversation:
    return Conversation(state, conversation.rows, conversation.frame_ids)


@pytest.mark.long
def test_a_fork_of_any_version_folds_to_the_prefix_with_open_calls_settled(database):
    # Without erasures: erased versions cannot be forked.
    conversations = {
        f"talk-{seed}": [
            encode_frame(frame)
            for frame in random_conversation(seed, 60)
            if frame.type != "LLMContextEraseFrame"
        ]
        for seed in SEEDS
    }
    log = Log()
    for context_id, values in conversations.items():
        for value in values:
            log.add(context_id, value)
    project(database, log.records, sizes=(500,))

    assert cancelled_in_forks(database, conversations) > 50, "hardly a call was open in any of these"


def cancelled_in_forks(database, conversations):
    """Compare a fork of every version with the context that it has to begin with. Returns how many settle a call."""

    async def check():
        cancelled = 0
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            for context_id, values in conversations.items():
                for version, (context, terms) in enumerate(prefixes(values, context_id)):
                    moment = await forking.moment(connection, context_id, version)
                    opening = forking.opening(moment.origin, NEW, moment.snapshot())
                    frames = [decode(encode_frame(opening)), *forking.behind(moment, NEW, run=False)]
                    forked = fold(frames, Conversation.new(NEW))
                    assert forked.context.to_wire() == context, (context_id, version)
                    now = forked.state.terms
                    assert (now.prompt_caching, now.skip_tts, now.limits) == (
                        terms.prompt_caching,
                        terms.skip_tts,
                        terms.limits,
                    )
                    cursor = await connection.execute(
                        "SELECT chain FROM frames WHERE context_id = %s AND version = %s",
                        (context_id, version),
                    )
                    [link] = await cursor.fetchone() or [chain.first_link(context_id)]
                    assert moment.origin.chain == link.hex()
                    cancelled += list(moment.messages) != moment.stored.context.to_wire()["messages"]
        return cancelled

    return asyncio.run(check())


BROUGHT = LLMSetToolsFrame(
    tools=[
        {"type": "function", "function": {"name": name, "parameters": {}}} | mark
        for name, mark in {"s": {}, "a": {"served_by": "client"}, "b": {"served_by": "client"}}.items()
    ]
)
WITH_CALLS_OF_A_CLIENT = {
    "two at once": [BROUGHT, ask(), committed("a", "b", run=2), result("b", "done")],
    # The result of one starts the next in the same step.
    "in a queue": [
        BROUGHT,
        ask(),
        committed("s", "a", run=2, run_in_parallel=False),
        begin("s", attempt=1),
        result("s", "done", attempt=1),
    ],
    "an id in another": [BROUGHT, ask(), committed(("a1", "a"), ("a12", "b"), run=2), result("a1", 1)],
    "one that JSON escapes": [BROUGHT, ask(), committed(('a"\\/é\n', "a"), "b", run=2)],
}


@pytest.mark.parametrize("played", WITH_CALLS_OF_A_CLIENT.values(), ids=WITH_CALLS_OF_A_CLIENT)
@pytest.mark.rule("RA5.client")
def test_a_fork_settles_each_call_of_a_client_in_its_own_place(database, played):
    values = [encode_frame(frame) for frame in flat(played)]
    log = Log()
    for value in values:
        log.add(dsl.CONTEXT, value)
    project(database, log.records, sizes=(500,))
    assert cancelled_in_forks(database, {dsl.CONTEXT: values}) >= 1


@pytest.mark.parametrize("batch", [1, 50], ids=["one by one", "together"])
def test_the_head_keeps_where_a_conversation_was_forked_from(database, batch):
    origin = {"context_id": "a-b", "version": 7, "chain": "0f" * 32}
    first = {"type": "LLMContextFrame", "context": {}, "forked_from": origin | {"later": 1}}
    marked = {"type": "LLMContextFrame", "context": {}, "metadata": {"experiment": "why not"}}
    values = [{"type": "LLMRunFrame"}, first, {"type": "LLMRunFrame"}, marked, {"type": "LLMRunFrame"}]
    log = Log()
    for value in values:
        log.add("marked", json.dumps(value).encode())
    for value in values[:3]:
        log.add("forked", json.dumps(value).encode())
    log.add("plain", b'{"type":"LLMContextFrame","context":{}}')
    project(database, log.records, sizes=(batch,))
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT context_id, origin, experiment FROM contexts ORDER BY 1").fetchall()
        assert rows == [("forked", origin, False), ("marked", origin, True), ("plain", None, False)]
        listed = connection.execute("SELECT forked_from, version, context_id FROM forks").fetchall()
        assert listed == [("a-b", 7, "forked")]
        listed = connection.execute("SELECT forked_from, version, context_id FROM experiments").fetchall()
        assert listed == [("a-b", 7, "marked")]
        listed = connection.execute("SELECT context_id FROM conversations").fetchall()
        assert sorted(listed) == [("forked",), ("plain",)]
    assert fields_that_differ(database, "forked") == fields_that_differ(database, "marked") == set()
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE contexts SET experiment = NOT experiment, origin = NULL")
    assert fields_that_differ(database, "forked") == {"origin", "experiment"}


def fields_that_differ(database, context_id):
    """What `verify` finds wrong with a conversation."""

    async def look():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            [done] = await verify.verify(connection, [context_id])
            return done

    verified = asyncio.run(look())
    return {one.field for one in verified.differences.kept}


TALK = [
    LLMContextFrame(context={"messages": [{"role": "system", "content": "Be brief."}]}),
    LLMEnablePromptCachingFrame(enable=True),
    LLMConfigureOutputFrame(skip_tts=True),
    LLMMessagesAppendFrame(messages=[{"role": "user", "content": "One?"}]),
    UserStartedSpeakingFrame(),
    LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Two?"}]),
]


def run_in_pipeline(settings, work):
    """Run this with a client, beside a projector."""

    async def run():
        await make_topics(settings)
        async with (
            asyncio.timeout(ON_SERVERS),
            projecting(settings),
            Client(settings) as client,
        ):
            await client.publish("old", *(frame.model_copy() for frame in TALK), wait=True)
            await work(client)

    asyncio.run(run())


def counts(settings, context_id):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return value_of(
            connection, "SELECT count(*) FROM frames WHERE context_id = %s", context_id
        ), value_of(connection, "SELECT count(*) FROM runs WHERE context_id = %s", context_id)


def test_a_fork_is_made_once_and_leaves_the_old_conversation_alone(settings):
    async def work(client):
        before = counts(settings, "old")
        fork = await client.fork("old", "new", version=4)
        assert (fork.version, fork.repeated, fork.origin.version) == (3, False, 4)
        stored, old = await client.context("new"), await client.context("old", 4)
        assert stored.context == old.context
        assert (stored.prompt_caching, stored.skip_tts) == (True, True)
        assert counts(settings, "new") == (3, 0)
        # Again, by another client and after the fork has continued.
        said = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Else?"}])
        await client.publish("new", said, wait=True)
        async with Client(settings) as another:
            again = await another.fork("old", "new", version=4)
        assert again.repeated
        assert counts(settings, "new") == (4, 0)
        # Now with a request, which is made once too.
        asked = await client.fork("old", "new", version=4, run=True)
        assert not asked.repeated
        assert (await client.fork("old", "new", version=4, run=True)).repeated
        assert counts(settings, "new") == (5, 1)
        assert counts(settings, "old") == before

    run_in_pipeline(settings, work)


def test_a_fork_into_another_conversation_is_refused_and_publishes_nothing(settings):
    async def work(client):
        await client.fork("old", "new", version=4)
        for context_id, version in (("new", 1), ("old", 4)):
            with pytest.raises(ForkRefusedError, match="Choose another id"):
                await client.fork("old", context_id, version=version)
        assert (counts(settings, "new"), counts(settings, "old")) == ((3, 0), (6, 0))
        with pytest.raises(NoSuchVersionError):
            await client.fork("old", "other", version=7)

    run_in_pipeline(settings, work)


@pytest.mark.regression("journey 96")
def test_a_context_that_is_larger_than_a_frame_is_no_beginning_of_a_fork(settings):
    async def work(client):
        half = "x" * (MAX_VALUE_BYTES // 2)
        for _ in range(2):
            said = LLMMessagesAppendFrame(messages=[{"role": "user", "content": half}])
            await client.publish("large", said, wait=True)
        with pytest.raises(ForkRefusedError, match=r"at version 2 has 8,388,.* has at most 8,388,608"):
            await client.fork("large", "new")
        assert counts(settings, "new") == (0, 0)
        assert (await client.fork("large", "new", version=1)).version == 1

    run_in_pipeline(settings, work)


def test_who_begins_a_conversation_first_keeps_it_and_no_model_is_asked_there(settings, monkeypatch):
    async def nobody_is_there(connection, context_id, origin):
        return False

    async def work(client):
        await client.publish("new", LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Mine."}]))
        # As if that frame came between the check and the fork.
        monkeypatch.setattr(forking, "check_free", nobody_is_there)
        with pytest.raises(ForkRefusedError, match="context_changed"):
            await client.fork("old", "new", version=4, run=True)
        assert counts(settings, "new") == (2, 0)
        assert [message["content"] for message in (await client.context("new")).context.messages] == ["Mine."]

    run_in_pipeline(settings, work)


def test_what_a_died_fork_left_out_comes_with_the_next_call(settings):
    async def work(client):
        moment = await client._connections.read(forking.moment, "old", 4)
        await client.publish("new", forking.opening(moment.origin, "new", moment.snapshot()))
        fork = await client.fork("old", "new", version=4, run=True)
        assert (fork.version, fork.repeated) == (4, False)
        assert (await client.context("new")).prompt_caching is True

    run_in_pipeline(settings, work)


def test_a_version_that_is_not_folded_is_not_forked(database):
    log = Log()
    for _ in range(3):
        log.add("parked", b'{"type":"LLMRunFrame"}')
    project(database, log.records)

    async def check():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await connection.execute(
                "UPDATE contexts SET parked_version = 3, parked_at = now(), parked_error = 'x'"
            )
            assert (await forking.moment(connection, "parked", 2)).origin.version == 2
            with pytest.raises(ForkRefusedError, match="from version 3 on are not folded"):
                await forking.moment(connection, "parked", 3)

    asyncio.run(check())


def test_the_command_and_the_client_of_scripts_fork(settings, command):
    def commands():
        said = command(settings, "fork", "old", "new", "--at", "4")
        assert said.exit_code == 0, said.output
        assert said.stdout.splitlines()[0] == "new starts from version 4 of old."
        again = command(settings, "fork", "old", "new", "--at", "4", "--json")
        assert json.loads(again.stdout)["repeated"] is True
        refused = command(settings, "fork", "old", "new", "--at", "5")
        assert (refused.exit_code, "Choose another id" in refused.stderr) == (1, True)
        nobody = command(settings, "fork", "nobody", "new", "--at", "5")
        assert (nobody.exit_code, str(NoSuchContextError("nobody")) in nobody.stderr) == (1, True)
        with SyncClient(settings) as client:
            assert client.fork("old", "another").version == 3

    async def work(_):
        await asyncio.to_thread(commands)

    run_in_pipeline(settings, work)


def test_lists_leave_experiments_out_unless_they_are_asked_for(database, monkeypatch):
    log = Log()
    said = [{"role": "user", "content": f"needle {'in hay ' * 100}"}]
    for name, metadata in (("real", {}), ("tried", {"experiment": True})):
        log.add(name, encode_frame(LLMContextFrame(context={"messages": said}, metadata=metadata)))
    project(database, log.records)
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)

    def named(*words):
        lines = CliRunner().invoke(application(), [*words, "--json"]).stdout.splitlines()
        return sorted((one["context_id"], one.get("status")) for one in map(json.loads, lines))

    assert named("list") == [("real", "quiet")]
    assert named("list", "--experiments") == [("real", "quiet"), ("tried", "experiment")]
    # The id is shown whole, however long the last words are.
    assert "  real  " in CliRunner().invoke(application(), ["list"]).stdout
    assert named("search", "needle") == [("real", None)]
    assert named("search", "needle", "--experiments") == [("real", None), ("tried", None)]
