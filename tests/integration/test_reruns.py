"""Reruns on real servers, with a live inference worker and a live function worker, which must not receive any of
them."""

import asyncio
import json

import psycopg
import pytest
from tests.support.answerers import answering
from tests.support.batches import value_of
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    play,
    stage_settings,  # noqa: F401  # a fixture
)
from typer.testing import CliRunner

from frameledger.frames import LLMContextFrame, LLMMessagesAppendFrame
from frameledger_services.cli import application
from frameledger_services.functions import FunctionRegistry
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

pytestmark = CONNECTIONS_LEFT_OPEN

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
RECORDED = [
    {"when": {"user": "weather"}, "say": [{"call": "weather", "arguments": {"city": "Oslo"}}]},
    {"when": {"result_of": "weather"}, "say": [{"text": "It rains in Oslo."}]},
    {"say": [{"text": "You are welcome."}]},
]
SNOW = [RECORDED[0], {"when": {"result_of": "weather"}, "say": [{"text": "It snows in Oslo."}]}, RECORDED[2]]
BERGEN = [
    {
        "when": {"user": "weather"},
        "say": [{"call": "weather", "arguments": {"city": city}} for city in ("Bergen", "Oslo")],
    },
    *RECORDED[1:],
]
PRICES = {"scripted": {"input": 1, "output": 2}}


@pytest.fixture
def command(settings, command, monkeypatch, tmp_path):
    """Run a command with a scripted model of these replies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_PROVIDER", "scripted")
    monkeypatch.setenv("FRAMELEDGER_INFERENCE_SCRIPT", str(tmp_path / "script.json"))
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))

    async def run(replies, *words, code=0):
        (tmp_path / "script.json").write_text(json.dumps({"replies": replies}))
        # In a thread: the services beside it go on.
        result = await asyncio.to_thread(command, settings, "rerun", *words)
        assert result.exit_code == code, result.output
        return result.stdout

    return run


def recorded(settings, scenario):
    """Have the conversation with real services, and run the scenario while they keep running. The function worker must
    not be called again."""
    called = []
    registry = FunctionRegistry()

    async def weather(params):
        called.append(params.arguments)
        await params.result_callback({"sky": "rain"})

    registry.register_function("weather", weather)

    async def beside(service, talk):
        opening = LLMContextFrame(context={"tools": [TOOL]})
        asking = LLMMessagesAppendFrame(
            messages=[{"role": "user", "content": "What is the weather?"}], run_llm=True
        )
        await talk.publish(opening, asking)

        async def answered():
            rows = await talk.rows("SELECT status FROM runs WHERE context_id = %s")
            return True if [status for (status,) in rows] == ["ended", "ended"] else None

        await talk.until(answered)
        assert called == [{"city": "Oslo"}]
        before = await settled(settings, talk)
        await scenario(talk)
        assert called == [{"city": "Oslo"}]
        # No work was requested in any conversation.
        assert await settled(settings, talk) == before

    script = Script.model_validate_json(json.dumps({"replies": RECORDED}))
    with answering(settings, lambda _: ScriptedLLMService(script=script)):
        play(settings, registry, beside)


async def settled(settings, talk):
    """Returns how much work was ever claimed and how many frames the conversation has, once everything on the log is
    folded and nothing is in flight."""
    # A frame after all others of this partition would not suffice: experiments are in other partitions.
    await talk.until_claims_finished()

    async def nothing_is_on_its_way():
        [(experiments,)] = await talk.rows("SELECT count(*) FROM outbox WHERE %s <> ''")
        return True if experiments == 0 else None

    await talk.until(nothing_is_on_its_way)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return (
            value_of(connection, "SELECT count(*) FROM claims"),
            value_of(connection, "SELECT count(*) FROM frames WHERE context_id = %s", talk.context_id),
            value_of(connection, "SELECT count(*) FROM runs WHERE opened_version IS NOT NULL"),
        )


async def until_stored(talk, experiment, frames):
    async def stored():
        [(count,)] = await talk.rows(
            "SELECT count(*) FROM frames WHERE %s <> '' AND context_id = %s", experiment
        )
        return True if count == frames else None

    await talk.until(stored)


def test_the_same_answer_is_no_difference_and_another_one_is_shown(settings, command):
    async def scenario(talk):
        versions = [
            v for (v,) in await talk.rows("SELECT opened_version FROM runs WHERE context_id = %s ORDER BY 1")
        ]
        at = ["--at", str(versions[0])]
        said = json.loads(await command(RECORDED, talk.context_id, *at, "--json", "--check"))
        [again] = said["reruns"]
        assert (again["same_text"], again["same_calls"]) == (True, True)
        assert said["recorded"]["text"] == again["text"] == "It rains in Oslo."
        assert again["calls"] == [
            {"function_name": "weather", "arguments": {"city": "Oslo"}, "answered": "recorded"}
        ]
        same = ("input_tokens", "output_tokens", "requests", "model", "provider")
        assert [said["recorded"][name] for name in same] == [again[name] for name in same]
        # With nothing changed, the first request is the one that was sent. In the next one calls have other ids.
        hashes = (
            "SELECT payload ->> 'request_sha256' FROM frames "
            "WHERE context_id = %s AND type = 'LLMFullResponseStartFrame' ORDER BY version"
        )
        await until_stored(talk, again["context_id"], 9)
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            sent = connection.execute(hashes, (talk.context_id,)).fetchall()
            assert connection.execute(hashes, (again["context_id"],)).fetchall()[0] == sent[0]
            row = connection.execute(
                "SELECT experiment, recording, open_call_count, origin ->> 'version' FROM contexts "
                "WHERE context_id = %s",
                (again["context_id"],),
            ).fetchone()
            assert row == (True, True, 0, str(versions[0]))
            ends = connection.execute(
                """
                SELECT DISTINCT ON (frames.version) first.version, first.causation_id
                FROM frames
                CROSS JOIN LATERAL causes(frames.context_id, frames.version) AS way
                JOIN frames AS first ON first.context_id = frames.context_id AND first.version = way.version
                WHERE frames.context_id = %s
                ORDER BY frames.version, way.depth DESC
                """,
                (again["context_id"],),
            ).fetchall()
            # The chain of causes of each leads to the frame that is the fork.
            assert ends == [(1, None)] * 9
        shown = await command(SNOW, talk.context_id, *at, "--check", "--prices", "prices.json", code=1)
        assert "It [-rains-] in Oslo." in shown
        assert "It {+snows+} in Oslo." in shown
        assert "price" in shown
        assert max(map(len, shown.splitlines())) <= 100
        # Not given, the version is that of the newest run: the one that saw the result.
        newest = json.loads(await command(RECORDED, talk.context_id, "--json"))
        assert (newest["version"], newest["reruns"][0]["requests"]) == (versions[1], 1)
        assert newest["reruns"][0]["same_text"]

    recorded(settings, scenario)


def test_calls_that_are_not_on_record_are_refused_and_listed_and_no_worker_hears_of_them(settings, command):
    async def scenario(talk):
        at = ["--at", "2", "--times", "2"]
        shown = await command(BERGEN, talk.context_id, *at)
        assert shown.count('No recorded result for the call: weather {"city": "Bergen"}') == 2
        assert "0 of 2 reruns equal the recorded answer" in shown
        said = json.loads(await command(BERGEN, talk.context_id, *at, "--json"))
        for one in said["reruns"]:
            assert [call["answered"] for call in one["calls"]] == ["not available", "recorded"]
            await until_stored(talk, one["context_id"], 11)

    recorded(settings, scenario)


def test_all_runs_are_asked_and_summed_up(settings, command, tmp_path):
    async def scenario(talk):
        words = [
            talk.context_id,
            "--all-runs",
            "--report",
            "report.json",
            "--prices",
            "prices.json",
            "--times",
            "2",
        ]
        shown = await command(SNOW, *words)
        report = json.loads((tmp_path / "report.json").read_text())
        assert [run["version"] for run in report["runs"]] == [2, 7]
        assert [run["recorded"]["requests"] for run in report["runs"]] == [2, 1]
        summary = report["summary"]
        assert {
            name: summary[name] for name in ("reruns", "same", "text_differs", "calls_differ", "failed")
        } == {
            "reruns": 4,
            "same": 0,
            "text_differs": 4,
            "calls_differ": 0,
            "failed": 0,
        }
        for side in ("recorded", "rerun"):
            used = summary[side]
            cost = (used["input_tokens"] + 2 * used["output_tokens"]) / 1_000_000
            assert used["price"] == pytest.approx(cost)
        assert f"{talk.context_id} at version 2: text differs 2×" in shown
        assert "Full report: report.json" in shown
        assert not list(tmp_path.glob("*.part"))
        # Selected by time: this conversation among others, and no experiment.
        lines = (
            await command(RECORDED, "--all-runs", "--since", "2020-01-01", "--json", "--jobs", "2")
        ).splitlines()
        *runs, last = map(json.loads, lines)
        assert talk.context_id in {run["context_id"] for run in runs}
        assert not any(run["context_id"].startswith("rerun-") for run in runs)
        assert last["summary"]["reruns"] == last["summary"]["same"] == len(runs)

    recorded(settings, scenario)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give the id of a conversation"),
        (["--all-runs"], "--context or --since"),
        (["a", "--all-runs", "--at", "3"], "cannot be used with --all-runs"),
        (["a", "--context", "b"], "use them with --all-runs"),
    ],
)
def test_a_rerun_that_is_asked_for_wrongly_says_how(command, words, said):
    result = CliRunner().invoke(application(), ["rerun", *words])
    assert result.exit_code == 2
    # Rich prints the error in a box of eighty columns.
    assert said in " ".join(result.stderr.replace("│", " ").split())
