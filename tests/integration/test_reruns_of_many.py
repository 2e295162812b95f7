"""Reruns of many runs on real servers: a failure of one does not end the others."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.support.answerers import answering
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    stage_settings,  # noqa: F401  # a fixture
    talking,
)

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.cli.rerun.session import RerunSession
from frameledger_services.client import Client
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

pytestmark = CONNECTIONS_LEFT_OPEN

LONG = [{"say": [{"text": "Quite so. " * 20_000}]}]
SHORT = [{"say": [{"text": "Quite so."}]}]


@pytest.fixture
def rerun(settings, command, monkeypatch, tmp_path):
    """Returns a function that reruns all runs of conversations with a scripted model of these replies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_PROVIDER", "scripted")
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SCRIPT", str(tmp_path / "script.json"))

    def run(replies, context_ids, *words):
        (tmp_path / "script.json").write_text(json.dumps({"replies": replies}))
        named = [word for context_id in context_ids for word in ("--context", context_id)]
        return command(settings, "rerun", "--all-runs", *named, *words)

    return run


def answered(settings, *conversations):
    """Have conversations, each of so many messages of three megabytes and a question, and its answer. Returns their
    ids."""

    async def ask(large_messages):
        async with talking(settings) as talk:
            for _ in range(large_messages):
                large = {"role": "user", "content": "x" * 3 * 1024 * 1024}
                await talk.publish(LLMMessagesAppendFrame(messages=[large]))
            question = {"role": "user", "content": "Is it so?"}
            await talk.publish(LLMMessagesAppendFrame(messages=[question], run_llm=True))

            async def ended():
                rows = await talk.rows("SELECT status FROM runs WHERE context_id = %s")
                return True if rows == [("ended",)] else None

            await talk.until(ended)
            return talk.context_id

    async def ask_all():
        return [await ask(one) for one in conversations]

    script = Script.model_validate_json(json.dumps({"replies": SHORT}))
    with answering(settings, lambda _: ScriptedLLMService(script=script)):
        return asyncio.run(ask_all())


@pytest.mark.regression("fault 230")
def test_a_conversation_that_is_erased_meanwhile_is_passed_over(settings, rerun, tmp_path, monkeypatch):
    erased, other = answered(settings, 0, 0)

    async def after_erasing(session, run):
        if run.context_id == erased:
            async with Client(settings) as client:
                await client.erase(erased, why="it is asked for meanwhile")
        return await rerun_one(session, run)

    rerun_one = RerunSession.rerun
    monkeypatch.setattr(RerunSession, "rerun", after_erasing)
    result = rerun(SHORT, [erased, other], "--report", "report.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [run["context_id"] for run in report["runs"]] == [other]
    assert report["summary"]["same"] == 1


@pytest.mark.regression("fault 231")
def test_a_context_that_no_frame_holds_is_left_out_and_named(settings, rerun, command, tmp_path):
    large, other = answered(settings, 3, 0)
    result = rerun(SHORT, [large, other], "--report", "report.json")
    assert result.exit_code == 0, result.output
    why = f"The context of {large!r} at version 4 has "
    assert f"Left out: {why}" in result.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [run["context_id"] for run in report["runs"]] == [other]
    assert (report["summary"]["same"], report["summary"]["left_out"]) == (1, 1)
    assert rerun(SHORT, [large], "--check").exit_code == 1
    # The same for a single rerun, and for a replay from that version.
    topic = TopicNames(settings.topic_prefix).frames
    for words in (["rerun", large], ["replay", large, "--from", "5", "--to", topic, "--as", f"{large}-copy"]):
        refused = command(settings, *words)
        assert refused.exit_code == 1, refused.output
        assert refused.stderr.startswith(why)


@pytest.mark.regression("fault 232")
def test_output_that_nobody_reads_ends_it_without_a_traceback(settings, rerun):
    context_ids = answered(settings, 0, 0)
    rerun(SHORT, context_ids)
    words = ["rerun", "--all-runs", "--json", *(word for one in context_ids for word in ("--context", one))]
    with subprocess.Popen(
        [sys.executable, "-m", "frameledger_services", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
