"""Each limit on real servers, with its own code: a worker's as an `ErrorFrame` that fails the run, the fold's as the
outcome of a frame. Everything else continues."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from tests.support.function_harness import CONNECTIONS_LEFT_OPEN, serving, stage, talking

from frameledger.evolve.limits import NAMES
from frameledger.frames import LLMMessagesAppendFrame, LLMSetLimitsFrame, LLMUpdateSettingsFrame
from frameledger_services.functions import FunctionRegistry
from frameledger_services.inference import InferenceService
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService
from frameledger_services.settings import Settings

pytestmark = CONNECTIONS_LEFT_OPEN

OFF: dict[str, Any] = {name: 0 for name in Settings.model_fields if name.startswith("limit_")}
MAX_TURNS = 6
AT_ONCE = 4
"""Number of concurrent services: each has its own connections, and the database accepts a hundred."""

USED = {"input_tokens": 60, "output_tokens": 40}
SPEAKS = {"replies": [{"say": [{"text": "Good day."}], "usage": USED}]}
CALLS_AT_ONCE = {
    "replies": [
        {"say": [{"text": "All at once."}, *({"call": "again", "arguments": {"n": n}} for n in range(3))]}
    ]
}
CALLS_FOR_EVER = {
    "replies": [
        {"when": {"result_of": "again"}, "say": [{"text": "Once more."}, {"call": "again"}]},
        {"say": [{"call": "again"}]},
    ]
}


@dataclass(frozen=True)
class Case:
    """A limit, a model that exceeds it, and the resulting error."""

    script: dict[str, Any]
    code: str
    message: str
    settings: dict[str, float] = field(default_factory=dict)
    own: LLMSetLimitsFrame | None = None
    """The conversation's own limits."""

    inputs: int = 1
    """How many inputs come at once, each of which interrupts the one before."""


def by_setting(
    name: str, value: float, script: dict[str, Any], code: str, what: str, inputs: int = 1
) -> Case:
    said = f"{what} FRAMELEDGER_{name.upper()} is {value:g}."
    return Case(script, code, said, {name: value}, None, inputs)


def by_frame(name: str, value: float, code: str, what: str, inputs: int = 1) -> Case:
    said = f"{what} {name} of its LLMSetLimitsFrame is {value:g}."
    return Case(SPEAKS, code, said, {}, LLMSetLimitsFrame(**{name: value}), inputs)


FAILED = {
    "rounds": by_setting(
        "limit_rounds",
        3,
        CALLS_FOR_EVER,
        "too_many_rounds",
        "The model has called functions 3 times in a row without an input.",
    ),
    "calls of a run": by_setting(
        "limit_calls_per_run", 2, CALLS_AT_ONCE, "too_many_calls", "The model makes 3 calls in one answer."
    ),
    "messages": by_setting(
        "limit_context_messages", 3, SPEAKS, "context_too_large", "The context has 5 messages."
    ),
    "bytes": by_setting("limit_context_bytes", 130, SPEAKS, "context_too_large", "The request has {} bytes."),
    "runs of a minute": by_setting(
        "limit_runs_per_minute",
        1,
        SPEAKS,
        "too_many_runs",
        "More than 1 runs were requested within a minute.",
        inputs=2,
    ),
    "tokens": by_setting(
        "limit_conversation_tokens_per_day",
        100,
        SPEAKS,
        "too_many_tokens",
        "The conversation has used 100 tokens today.",
    ),
    "cost": by_setting(
        "limit_conversation_cost_per_day",
        1.5,
        SPEAKS,
        "too_much_spent",
        "The conversation has cost 1.60 today.",
    ),
    "tokens of all": by_setting(
        "limit_tokens_per_day", 100, SPEAKS, "too_many_tokens", "All conversations have used {} tokens today."
    ),
    "cost of all": by_setting(
        "limit_cost_per_day", 1.5, SPEAKS, "too_much_spent", "All conversations have cost {} today."
    ),
    "own runs of a minute": by_frame(
        "runs_per_minute", 1, "too_many_runs", "More than 1 runs were requested within a minute.", inputs=2
    ),
    "own tokens": by_frame(
        "tokens_per_day", 100, "too_many_tokens", "The conversation has used 100 tokens today."
    ),
    "own cost": by_frame("cost_per_day", 1.5, "too_much_spent", "The conversation has cost 1.60 today."),
}

PRICE = (10_000, 25_000)
"""Prices of a million input and output tokens: a run that used `USED` costs 1.60."""

IGNORED = {
    "context_messages": (SPEAKS, LLMSetLimitsFrame(context_messages=2), "context_full"),
    "context_bytes": (SPEAKS, LLMSetLimitsFrame(context_bytes=1_500), "context_full"),
    "frames_per_second": (SPEAKS, LLMSetLimitsFrame(frames_per_second=1), "too_many_frames"),
    "calls_per_run": (CALLS_AT_ONCE, LLMSetLimitsFrame(calls_per_run=2), "too_many_calls"),
    "rounds": (CALLS_FOR_EVER, LLMSetLimitsFrame(rounds=3), "too_many_rounds"),
}
"""By the limit that the fold enforces: a model, the conversation's limits, and the reason why a frame is ignored."""


@dataclass
class Played:
    """The result of a conversation."""

    errors: list[dict[str, Any]]
    runs: list[tuple[Any, ...]]
    ignored: set[tuple[str, str]]
    messages: list[dict[str, Any]]
    calls: list[str]


@pytest.fixture(scope="module", name="played")
def all_of_them_on_one_pipeline(kafka, database_server, migrated_template):
    with (
        pytest.MonkeyPatch.context() as patch,
        stage(kafka, database_server, migrated_template) as settings,
    ):
        patch.setattr("frameledger_services.inference.limits.REMEMBERED_SECONDS", 0.0)
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            connection.cursor().executemany(
                "INSERT INTO prices (model, input, output, currency) VALUES (%s, %s, %s, 'EUR')",
                [(name, *PRICE) for name, case in FAILED.items() if case.code == "too_much_spent"],
            )
        return asyncio.run(_play(settings))


async def _play(settings):
    registry = FunctionRegistry()
    registry.register_direct_function(again)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(playing):
        async with at_once:
            return await playing

    plays = {name: _until_it_fails(settings, name, case) for name, case in FAILED.items()} | {
        f"folded {limit}": _until_it_is_ignored(settings, limit, *case) for limit, case in IGNORED.items()
    }
    async with serving(settings, registry):
        seen = await asyncio.gather(*map(one, plays.values()))
    return dict(zip(plays, seen, strict=True))


async def again(n: int = 0) -> int:
    """Say a number."""
    return n


async def _until_it_fails(settings, name, case):
    async with _conversation(settings, name, case.script, case.settings) as talk:
        if case.own is not None:
            await talk.publish(case.own)
        for _ in range(MAX_TURNS):
            await talk.publish(*(asking() for _ in range(case.inputs)))
            await _at_rest(talk)
            if await talk.payloads("ErrorFrame"):
                break
        return await _seen(talk)


async def _until_it_is_ignored(settings, limit, script, limits, _):
    async with _conversation(settings, f"folded {limit}", script, {}) as talk:
        await talk.publish(limits)
        for _ in range(MAX_TURNS):
            await talk.publish(asking(), asking(), asking())
            await _at_rest(talk)
            if any(outcome == "ignored" for _, outcome, _ in await talk.log()):
                break
        return await _seen(talk)


@asynccontextmanager
async def _conversation(settings, name, script, limits):
    """Yields a conversation with a model of its own, whose service has only these limits."""
    model = ScriptedLLMService(script=Script.model_validate_json(json.dumps(script)))
    limited = settings.model_copy(update=OFF | limits)
    service = InferenceService(limited, model, service=f"limits-{name.replace(' ', '-')}", models=[name])
    async with service, talking(settings, name.replace(" ", "-")) as talk:
        await talk.publish(LLMUpdateSettingsFrame(settings={"model": name}))
        yield talk


def asking():
    message = {"role": "user", "content": "Well?"}
    return LLMMessagesAppendFrame(messages=[message], run_llm=True, second_input="interrupt")


async def _at_rest(talk):
    """Wait until no run and no call of the conversation is open."""

    async def nothing_is_open():
        [(runs, calls)] = await talk.rows(
            """
            SELECT (SELECT count(*) FROM runs WHERE context_id = c.context_id AND status IN ('requested', 'open')),
                (SELECT count(*) FROM tool_calls WHERE context_id = c.context_id
                    AND status IN ('announced', 'dispatched', 'running'))
            FROM contexts AS c WHERE context_id = %s
            """
        )
        return True if runs == calls == 0 else None

    await talk.until(nothing_is_open)


async def _seen(talk):
    return Played(
        errors=await talk.payloads("ErrorFrame"),
        runs=await talk.rows(
            "SELECT status, error_code, error FROM runs WHERE context_id = %s ORDER BY requested_version"
        ),
        ignored={(kind, reason) for kind, outcome, reason in await talk.log() if outcome == "ignored"},
        messages=await talk.messages(),
        calls=[
            status
            for (status,) in await talk.rows(
                "SELECT status FROM tool_calls WHERE context_id = %s ORDER BY requested_version, ordinal"
            )
        ],
    )


def test_each_limit_has_its_case():
    assert {name for case in FAILED.values() for name in case.settings} == set(OFF)
    own = {
        name for case in FAILED.values() if case.own is not None for name in NAMES if getattr(case.own, name)
    }
    assert own | set(IGNORED) == set(NAMES)


@pytest.mark.parametrize("name", FAILED)
def test_a_run_beyond_a_limit_fails_with_the_word_the_value_and_what_raises_it(played, name):
    case, seen = FAILED[name], played[name]
    [error] = seen.errors
    assert error["code"] == case.code
    before, _, after = case.message.partition("{}")
    assert error["message"].startswith(before)
    assert error["message"].endswith(after)
    assert seen.runs[-1] == ("failed", case.code, error["message"])
    assert {status for status, _, _ in seen.runs[:-1]} <= {"ended", "interrupted"}


def test_a_model_that_calls_itself_for_ever_calls_as_often_as_it_may(played):
    assert played["rounds"].calls == ["done"] * 3
    assert played["folded rounds"].calls == ["done"] * 3


def test_of_calls_that_are_too_many_none_is_made(played):
    assert set(played["calls of a run"].calls) <= {"forgotten"}
    assert played["folded calls_per_run"].calls == []


@pytest.mark.parametrize("limit", IGNORED)
@pytest.mark.rule("R8.2", "R8.3", "R8.4", "R8.5")
def test_what_is_beyond_a_limit_of_the_conversation_is_ignored_with_its_word(played, limit):
    reason, seen = IGNORED[limit][2], played[f"folded {limit}"]
    assert {why for _, why in seen.ignored} == {reason}
    assert seen.errors == []
    if reason in ("too_many_calls", "too_many_rounds"):
        assert {kind for kind, _ in seen.ignored} == {"FunctionCallsStartedFrame"}
        # The text beside the calls is kept, and the run ends normally.
        assert seen.runs[-1] == ("ended", None, None)
        assert seen.messages[-1]["role"] == "assistant"
