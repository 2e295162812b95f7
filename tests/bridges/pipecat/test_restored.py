"""On a real Kafka and a real PostgreSQL: SQL equals Pipecat's context, and a killed bot's conversation is restored."""

import asyncio
import os
from contextlib import asynccontextmanager

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.bridges.pipecat import killable_bot
from tests.bridges.pipecat.bots import Answer, Bot
from tests.bridges.pipecat.recording import as_bytes, stored_bytes
from tests.support.pages import ROOT, blocks
from tests.support.processes import Process
from tests.support.projecting import make_topics, projecting
from tests.support.tiers import long

from frameledger_services.client import Client
from frameledger_services.pipecat import FrameledgerObserver

pytestmark = pytest.mark.servers

PAGE = ROOT / "infra" / "docs" / "how-to" / "frameworks.md"


@pytest.fixture
def kill_every():
    """Kill the bot at every n-th item: 59 times with `BRIDGE_KILLS=all`, as in `make chaos`, otherwise seven times."""
    return 2 if os.environ.get("BRIDGE_KILLS") == "all" else 19


@asynccontextmanager
async def pipeline(settings, within):
    """Topics and a running projector."""
    await make_topics(settings)
    async with asyncio.timeout(within), projecting(settings):
        yield


def run_in_pipeline(settings, scene, within=ON_SERVERS):
    async def play():
        async with pipeline(settings, within):
            return await scene()

    return asyncio.run(play())


async def all_of(settings, ledger):
    """Returns the stored conversation once the pipeline's last frame is stored."""
    async with Client(settings) as client:
        async for one in client.follow(ledger.context_id):
            if one.type in ("EndFrame", "CancelFrame") and str(ledger.session) in one.payload.decode():
                break
        return await client.context(ledger.context_id)


async def until_stored(settings, type_):
    """The pipeline goes on before its frames are published."""
    async with Client(settings) as client:
        async for one in client.follow("call-7"):
            if one.type == type_:
                return


def in_sql(settings, question, *parameters):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute(question, parameters).fetchall()


@pytest.mark.parametrize("speaks", [False, True], ids=["text", "speech"])
def test_sql_has_what_pipecat_has(settings, speaks):
    async def scene():
        ledger = FrameledgerObserver("call-7", settings)
        answers = [
            Answer(["Let me see."], [("weather", "call-1", {"city": "Brindle"})]),
            Answer(["Rain", "."]),
        ]
        bot = Bot([*answers, Answer(["One", " two", " three"], stops_at=2)], speaks, observers=[ledger])

        async def weather(params):
            await params.result_callback({"sky": "rain"})

        bot.model.register_function("weather", weather)

        async def play(bot):
            await bot.say("What is the weather?")
            await bot.model.until_answered(2)
            await bot.settle()
            await bot.say("Count.")
            await bot.model.stopped.wait()
            await bot.until_heard(2)
            await bot.interrupt()

        await bot.run(play)
        assert ledger.lost == {}
        stored = await all_of(settings, ledger)
        assert stored_bytes(
            one.to_wire() if hasattr(one, "to_wire") else one for one in stored.context.messages
        ) == (as_bytes(bot.context.messages))
        assert len(bot.context.messages) == 7

    run_in_pipeline(settings, scene)
    calls = in_sql(settings, "SELECT function_name, status FROM tool_calls WHERE context_id = 'call-7'")
    assert calls == [("weather", "done")]
    for block in blocks(PAGE):
        if block.language == "sql" and "call-7" in block.text:
            for question in filter(str.strip, block.text.split(";")):
                assert in_sql(settings, question), question
    outcomes = in_sql(
        settings,
        "SELECT DISTINCT outcome FROM frames WHERE context_id = 'call-7' AND starts_with(type, 'LLMMessage')",
    )
    assert outcomes == [("applied",)]
    runs = in_sql(settings, "SELECT count(*) FROM outbox")
    assert runs == [(0,)]


def test_a_new_conversation_begins_with_what_it_is_given_and_an_old_one_with_itself(settings):
    greeting = {"role": "developer", "content": "Be brief."}

    async def f(params):
        """Do it."""

    async def scene():
        first = FrameledgerObserver("call-7", settings)
        context = await first.restore([greeting], tools=[f])
        assert first.restored.is_new
        assert context.messages == [greeting]
        bot = Bot([Answer(["Yes."], thought="Hm.", signature=b"\x00")], context=context, observers=[first])
        first.note(flow={"node": "menu"})
        await bot.run(lambda bot: bot.ask("Hi"))

        second = FrameledgerObserver("call-7", settings)
        again = await second.restore([{"role": "user", "content": "not this"}], tools=[f])
        assert not second.restored.is_new
        assert second.restored.repaired == second.restored.tools_changed == ()
        assert second.restored.noted["flow"] == {"node": "menu"}
        second.note(seat=4, step=None)
        assert again.messages == context.messages
        assert [one.name for one in again.tools.standard_tools] == ["f"]
        bot = Bot([Answer(["Still here."])], context=again, observers=[second])
        await bot.run(lambda bot: bot.ask("Are you there?"))
        stored = await all_of(settings, second)
        assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(again.messages)
        third = FrameledgerObserver("call-7", settings)
        await third.restore()
        assert third.restored.noted["flow"] == {"node": "menu"}
        assert third.restored.noted["seat"] == 4
        assert third.restored.tools_changed == ("f",)
        with pytest.raises(RuntimeError, match="once"):
            await third.restore()
        await third.finish()

    run_in_pipeline(settings, scene)


@pytest.mark.regression("bridge 30")
def test_first_messages_that_are_larger_than_a_record_come_back(settings):
    given = [{"role": "user", "content": f"{number} {'x' * 700_000}"} for number in range(3)]

    async def scene():
        first, second = FrameledgerObserver("call-7", settings), FrameledgerObserver("call-7", settings)
        assert (await first.restore(given)).messages == given
        assert (await second.restore()).messages == given
        assert not second.restored.is_new
        await first.finish()
        await second.finish()

    run_in_pipeline(settings, scene)


@pytest.mark.regression("bridge 2")
def test_a_result_reaches_its_message_after_the_newest_message_was_removed(settings):
    async def scene():
        first = FrameledgerObserver("call-7", settings)
        bot = Bot([Answer(["Yes."])], context=await first.restore(), observers=[first])

        async def play(bot):
            await bot.ask("Hi")
            bot.context.messages.pop()

        await bot.run(play)
        second = FrameledgerObserver("call-7", settings)
        answers = [Answer([], [("weather", "call-1", {"city": "Brindle"})]), Answer(["Rain."])]
        bot = Bot(answers, context=await second.restore(), observers=[second])

        async def weather(params):
            await params.result_callback({"sky": "rain"})

        bot.model.register_function("weather", weather)

        async def ask(bot):
            await bot.say("What is the weather?")
            await bot.model.until_answered(2)
            await bot.settle()

        await bot.run(ask)
        stored = await all_of(settings, second)
        assert "rain" in as_bytes(bot.context.messages)
        assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(bot.context.messages)

    run_in_pipeline(settings, scene)


@pytest.mark.regression("bridge 26")
def test_of_two_processes_of_one_name_the_older_writes_no_more_messages_and_ends_nothing(settings):
    async def scene():
        old, new = FrameledgerObserver("call-7", settings), FrameledgerObserver("call-7", settings)
        bot = Bot([Answer(["One."]), Answer(["Two."])], context=await old.restore(), observers=[old])

        async def play(bot):
            await bot.ask("First")
            await until_stored(settings, "LLMFullResponseEndFrame")
            # From here on both processes publish; earlier messages of the old one are stored.
            context = await new.restore()
            assert [one["content"] for one in context.messages][:1] == ["First"]
            await bot.ask("Second")
            other = Bot([Answer(["Of the new."])], context=context, observers=[new])
            await other.run(lambda other: other.ask("Third"))
            return context

        context = None

        async def keep(bot):
            nonlocal context
            context = await play(bot)

        await bot.run(keep)
        await all_of(settings, old)
        stored = await all_of(settings, new)
        assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(context.messages)
        assert "Second" not in str(stored.context.messages)

    run_in_pipeline(settings, scene)
    ignored = in_sql(settings, "SELECT count(*) FROM frames WHERE reason = 'mirror_superseded'")
    assert ignored[0][0] >= 2
    ends = in_sql(settings, "SELECT outcome, reason FROM frames WHERE type = 'EndFrame' ORDER BY version")
    assert ends == [("applied", None), ("ignored", "mirror_superseded")]


CAPTURED = 90
"""The script captures a few more items than this."""


def places(flushed, *, every):
    """The items at which the process dies. They differ between flushed and unflushed runs."""
    return range(3, CAPTURED, every) if flushed else range(4, CAPTURED, 3 * every)


@pytest.mark.parametrize("flushed", [long(True), False], ids=["published", "in the middle"])
def test_a_bot_that_is_killed_anywhere_comes_back(settings, flushed, tmp_path, kill_every):
    chosen = places(flushed, every=kill_every)

    async def scene():
        for place in chosen:
            async with asyncio.timeout(ON_SERVERS):
                await killed_and_restored(settings, place, flushed, tmp_path / f"book-{place}")

    run_in_pipeline(settings, scene, within=len(chosen) * ON_SERVERS)


async def killed_and_restored(settings, place, flushed, book):
    context_id = f"call-{place}-{flushed}"
    with Process(killable_bot.run, settings, context_id, place, flushed, str(book)) as bot_process:
        told = await asyncio.to_thread(bot_process.hear)
        assert not isinstance(told, int), f"the script captures {told} items"
        words, asked = told
        assert await asyncio.to_thread(bot_process.ended) == -9
    ledger = FrameledgerObserver(context_id, settings)
    context = await ledger.restore(within=ON_SERVERS)
    messages = context.messages
    assert provider_rules_hold(messages), messages
    if flushed:
        spoken = " ".join(
            str(one["content"]) for one in messages if one["role"] == "assistant" and "content" in one
        )
        assert spoken.split() == words, (place, messages)
        heard = " ".join(one["content"] for one in messages if one["role"] == "user")
        assert heard.split() == " ".join(asked).split(), (place, messages)
        made = book.read_text().split() if book.exists() else []
        known = {one.get("tool_call_id") for one in messages}
        assert set(made) <= known, (place, messages)
    again = Bot([Answer(["Go on."])], True, context, [ledger])
    await again.run(lambda again: again.ask("Are you there?"))
    stored = await all_of(settings, ledger)
    assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(messages)
    again_asked = again.model.asked[0]
    assert provider_rules_hold(again_asked)


def provider_rules_hold(messages):
    """Check that each call is directly followed by its result, and none is marked as running."""
    open_calls: list = []
    for one in messages:
        if one.get("role") == "tool":
            if one["tool_call_id"] not in open_calls or one["content"] == "IN_PROGRESS":
                return False
            open_calls.remove(one["tool_call_id"])
            continue
        if open_calls:
            return False
        open_calls = [call["id"] for call in one.get("tool_calls") or ()]
    return not open_calls


def wire(message):
    return message.to_wire() if hasattr(message, "to_wire") else message
