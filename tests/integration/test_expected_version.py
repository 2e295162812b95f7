"""`expected_version`: several processes continue the same conversation on real servers."""

import asyncio
import json
from uuid import uuid4

import pytest
from tests.support.projecting import make_topics, projecting, settings_of_its_own  # noqa: F401  # a fixture

from frameledger.context import LLMContext
from frameledger.frames import (
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMSetToolChoiceFrame,
    LLMTextFrame,
    TranscriptionFrame,
)
from frameledger_services.client import Client, ContextChangedError, SyncClient


def message(words):
    return {"role": "user", "content": words}


def append(words):
    return LLMMessagesAppendFrame(messages=[message(words)])


@pytest.fixture(name="context_id")
def a_context_id():
    return f"ctx-{uuid4()}"


def scenario(settings, what):
    """Run it with a projector and a client."""

    async def run():
        await make_topics(settings)
        async with projecting(settings), Client(settings) as client:
            await what(client)

    asyncio.run(run())


@pytest.mark.rule("RA5.expected")
def test_of_publishers_that_race_from_one_version_exactly_one_wins_each_round(settings, context_id):
    async def race(client):
        async with Client(settings) as one, Client(settings) as other:
            won = []
            for number in range(10):
                known = (await client.restore(context_id)).version
                answers = await asyncio.gather(
                    *(
                        racer.publish(
                            context_id, append(f"{name} {number}"), expected_version=known, wait=True
                        )
                        for name, racer in (("one", one), ("other", other))
                    ),
                    return_exceptions=True,
                )
                (winner,) = [answer[0] for answer in answers if isinstance(answer, tuple)]
                (loser,) = [answer for answer in answers if isinstance(answer, ContextChangedError)]
                assert (winner.version, winner.outcome) == (known + 1, "applied")
                assert (loser.expected, loser.newest, loser.context_id) == (known, known + 2, context_id)
                assert (loser.published.outcome, loser.published.reason) == ("ignored", "context_changed")
                won.append(winner.frame_id)
            restored = await client.restore(context_id)
            assert restored.version == 20
            assert [said["content"].split()[1] for said in restored.context.messages] == [
                str(number) for number in range(10)
            ]
            applied = [
                str(frame.frame_id) async for frame in client.frames(context_id) if frame.outcome == "applied"
            ]
            assert applied == won

    scenario(settings, race)


@pytest.mark.rule("RA5.expected")
def test_who_summarizes_while_an_answer_streams_is_heard_and_who_missed_its_end_is_not(settings, context_id):
    async def summarize(client):
        await client.publish(context_id, append("hi"), LLMFullResponseStartFrame(), wait=True)
        known = (await client.restore(context_id)).version
        await client.publish(context_id, LLMTextFrame(text="so"), LLMTextFrame(text=" far"))
        summary = LLMMessagesUpdateFrame(messages=[message("hi, in short")])
        (published,) = await client.publish(context_id, summary, expected_version=known, wait=True)
        assert published.outcome == "applied"

        await client.publish(context_id, LLMFullResponseEndFrame())
        late = LLMMessagesUpdateFrame(messages=[])
        with pytest.raises(
            ContextChangedError, match=f"has changed since version {published.version}, and is now at"
        ):
            await client.publish(context_id, late, expected_version=published.version, wait=True)
        restored = await client.restore(context_id)
        with pytest.raises(ValueError, match="before, and its outcome stays"):
            await client.publish(context_id, late, expected_version=restored.version, wait=True)
        assert [said["content"] for said in restored.context.messages] == ["hi, in short", "so far"]
        await client.publish(context_id, late.model_copy(), expected_version=restored.version, wait=True)
        assert (await client.restore(context_id)).context == LLMContext()

    scenario(settings, summarize)


def test_a_conversation_goes_on_in_a_process_that_has_only_its_id(settings, context_id):
    async def go_on(client):
        nothing = await client.restore(context_id)
        assert (nothing.context_id, nothing.version, nothing.context) == (context_id, 0, LLMContext())
        begun = nothing.context.add_message(message("hi")).with_settings({"seed": 1})
        await client.publish(
            context_id, LLMContextFrame(context=begun), expected_version=nothing.version, wait=True
        )
        restored = await client.restore(context_id)
        assert restored == await client.context(context_id)
        assert (restored.version, restored.context) == (1, begun)
        # Another process that also expects an empty conversation is too late; without waiting it reads that in the
        # outcome.
        await client.publish(context_id, LLMSetToolChoiceFrame(tool_choice="none"), expected_version=0)
        await client.publish(context_id, TranscriptionFrame(text="and?"), wait=True)
        outcomes = [(frame.outcome, frame.reason) async for frame in client.frames(context_id)]
        assert outcomes == [("applied", None), ("ignored", "context_changed"), ("applied", None)]

    scenario(settings, go_on)


def test_the_command_says_what_a_person_does_next(settings, context_id, command):
    publish = ["publish", context_id, append("hi").model_dump_json(exclude_none=True), "--wait"]

    async def commands(client):
        def run(*arguments):
            return asyncio.to_thread(command, settings, *publish, *arguments)

        first = await run("--expected-version", "0")
        assert first.exit_code == 0, first.output
        second = await run("--expected-version", "0", "--json")
        assert second.exit_code == 1
        assert json.loads(second.stdout)["reason"] == "context_changed"
        assert "has changed since version 0, and is now at version 2" in second.stderr
        assert f"frameledger show {context_id}" in second.stderr
        many = await run(publish[2], "--expected-version", "0")
        assert many.exit_code == 2
        assert "use it with a single frame" in many.stderr

    scenario(settings, commands)
    with SyncClient(settings) as client:
        assert client.restore(context_id).context.messages == ({"role": "user", "content": "hi"},)
