"""An application that runs its own model is counted like any other: its answers are runs with models, tokens and
times, and nothing here waits for them (RA5.counted)."""

import asyncio
import json
from pathlib import Path

import psycopg
import pytest
from tests.support.batches import Log, Projecting
from tests.support.tiers import long

from frameledger import derived

RECORDING = {"type": "LLMContextFrame", "context": {}, "react": False}
ELSEWHERE = {"type": "LLMUpdateSettingsFrame", "settings": {"answered_elsewhere": True}}
SPEAKS = ({"type": "UserStartedSpeakingFrame"}, {"type": "TranscriptionFrame", "text": "How late is it?"})
ASKS = (*SPEAKS, {"type": "UserStoppedSpeakingFrame"})
STARTS = {"type": "LLMFullResponseStartFrame", "provider": "mine", "model": "my-model"}
USED = {"input_tokens": 70, "output_tokens": 7, "cache_read_tokens": 60}
ENDS = {"type": "LLMFullResponseEndFrame", "finish_reason": "stop", "usage": USED}
CUTS = {"type": "InterruptionFrame", "heard_text": "Past"}
CUTS_IN = {
    "type": "LLMMessagesAppendFrame",
    "messages": [{"role": "user", "content": "Stop."}],
    "run_llm": True,
    "second_input": "interrupt",
}


def says(text):
    return {"type": "LLMTextFrame", "text": text}


def projected(database, *frames, sizes=(1,)):
    """The runs of a conversation of these frames, a second apart, stored in batches of these sizes in turn."""
    log = Log()
    for frame in frames:
        log.add("c", json.dumps(frame).encode())

    async def store():
        async with Projecting(database) as projecting:
            rest = log.records
            step = sizes[0]
            for first in range(0, len(rest), step):
                # As after a start: the state comes from the database.
                projecting.cache.clear()
                await projecting.store(rest[first : first + step])

    asyncio.run(store())
    with psycopg.connect(database) as connection:
        return connection.execute(
            "SELECT run_id, trigger, status, model, provider, input_tokens, output_tokens, usage_partial, generated, "
            "heard, first_text_at > started_at, closed_at > first_text_at, finish_reason "
            "FROM facts_runs ORDER BY requested_version"
        ).fetchall()


@pytest.mark.parametrize("begins", [RECORDING, ELSEWHERE], ids=["recording", "elsewhere"])
@pytest.mark.parametrize("size", [1, long(2), 99])
@pytest.mark.regression("journey 3")
def test_an_answer_to_what_a_user_asked_is_one_run_with_all_that_is_known_of_it(database, begins, size):
    [run] = projected(database, begins, *ASKS, STARTS, says("Past "), says("noon."), ENDS, sizes=(size,))
    assert run == (
        *(derived.run_id("c", 4), "UserStoppedSpeakingFrame", "ended", "my-model", "mine", 70, 7, False),
        *("Past noon.", "Past noon.", True, True, "stop"),
    )
    with psycopg.connect(database) as connection:
        # Measured from the user's last words, as for a run of ours.
        assert connection.execute(
            "SELECT first_text_s > 0, heard_at IS NOT NULL FROM facts_runs"
        ).fetchone() == (
            True,
            True,
        )
        assert connection.execute("SELECT run_count, open_run_id FROM contexts").fetchone() == (1, None)
        assert connection.execute(
            "SELECT count(*) FROM runs WHERE status IN ('open', 'noted')"
        ).fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        assert connection.execute("SELECT input, output FROM token_usage").fetchone() == (70, 7)


def test_an_answer_that_nobody_asked_for_is_a_run_of_its_own(database):
    asked = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Hi"}]}
    [run] = projected(database, asked, STARTS, says("Hello."), ENDS)
    assert run[:4] == (derived.run_id("c", 2), "LLMFullResponseStartFrame", "ended", "my-model")


def test_an_interrupted_answer_has_what_was_said_and_what_was_heard(database):
    runs = projected(
        database, RECORDING, *ASKS, STARTS, says("Past noon."), CUTS, STARTS, says("Well."), ENDS
    )
    assert [run[2] for run in runs] == ["interrupted", "ended"]
    assert runs[0][8:10] == ("Past noon.", "Past")


@pytest.mark.parametrize(
    ("frame", "became"),
    [
        ({**ENDS, "finish_reason": "error"}, "failed"),
        ({"type": "ErrorFrame", "message": "Down.", "fatal": True}, "failed"),
        (STARTS, "replaced"),
        ({"type": "EndFrame"}, "context_ended"),
        (CUTS, "interrupted"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else value,
)
def test_however_it_ends_the_run_says_so(database, frame, became):
    runs = projected(database, RECORDING, *ASKS, STARTS, says("Past"), frame)
    assert runs[0][2] == became


@pytest.mark.parametrize(
    "frames",
    [
        (CUTS_IN,),
        ({**SPEAKS[0], "second_input": "interrupt"}, *SPEAKS[1:], ASKS[-1]),
        ({"type": "LLMRunFrame", "second_input": "interrupt"},),
    ],
    ids=["append", "turn", "run"],
)
@pytest.mark.regression("journey 154")
def test_an_answer_that_an_input_stops_was_interrupted(database, frames):
    """As the run of the original, whose recorded copy this may be: no other answer takes its place."""
    runs = projected(database, RECORDING, *ASKS, STARTS, says("Past noon."), *frames)
    assert [(run[2], run[8]) for run in runs] == [("interrupted", "Past noon."), ("noted", None)]


@pytest.mark.parametrize("begins", [RECORDING, None], ids=["counted", "requested"])
@pytest.mark.regression("journey 164")
def test_a_call_that_fails_meanwhile_is_no_error_of_the_run_that_is_open(database, begins):
    """Function services publish the details of a failed call in an error that names the call and no run."""
    failed = {"type": "ErrorFrame", "message": "The call failed.", "code": "function_failed"}
    refused = {"type": "ErrorFrame", "message": "Slow down.", "code": "mine"}
    before = (begins, *ASKS, STARTS) if begins else ASKS
    projected(database, *before, refused, {**failed, "tool_call_id": "call-1"})
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT error, error_code FROM runs").fetchone() == ("Slow down.", "mine")


@pytest.mark.regression("fault 250")
def test_what_was_said_before_another_answer_began_is_of_the_first_alone(database):
    """The start of the second writes it."""
    runs = projected(database, RECORDING, *ASKS, STARTS, says("Past"), STARTS, says("Half past"), ENDS)
    assert [(run[2], *run[8:10]) for run in runs] == [
        ("replaced", "Past", "Past"),
        ("ended", "Half past", "Half past"),
    ]
    with psycopg.connect(database) as connection:
        shown = "SELECT became, said FROM run_history ORDER BY version"
        assert connection.execute(shown).fetchall() == [("replaced", "Past"), ("ended", "Half past")]


def explained(database):
    """What explain_run() says of each run's attempts: the model, the versions, and the text."""
    with psycopg.connect(database) as connection:
        attempts = connection.execute(
            "SELECT explain_run(context_id, run_id) -> 'attempts' FROM runs ORDER BY requested_version"
        ).fetchall()
    return [[(one["model"], one["from"], one["to"], one["text"]) for one in of_run] for (of_run,) in attempts]


@pytest.mark.regression("fault 254")
def test_an_answer_is_explained_by_its_own_start_and_not_by_that_of_the_next(database):
    other = STARTS | {"model": "another"}
    projected(database, STARTS, says("Past"), other, says("Half past"), ENDS)
    assert explained(database) == [[("my-model", 1, 2, "Past")], [("another", 3, 5, "Half past")]]


@pytest.mark.regression("fault 254")
def test_what_is_still_being_said_is_explained(database):
    projected(database, RECORDING, *ASKS, STARTS, says("Past"))
    assert explained(database) == [[("my-model", 5, 6, "Past")]]


@pytest.mark.regression("fault 254")
def test_a_run_that_was_dropped_is_not_explained_by_the_answer_of_another(database):
    """The second was to follow the first, which the conversation ended."""
    projected(
        database,
        {"type": "LLMRunFrame"},
        {"type": "LLMRunFrame"},
        STARTS,
        says("Goodbye."),
        {"type": "EndFrame"},
    )
    with psycopg.connect(database) as connection:
        became = connection.execute("SELECT status FROM runs ORDER BY requested_version").fetchall()
    assert became == [("context_ended",), ("dropped",)]
    assert explained(database) == [[("my-model", 3, 4, "Goodbye.")], []]


@pytest.mark.regression("fault 251")
@pytest.mark.parametrize(
    ("used", "tokens", "is_partial"),
    [({}, (None, None), False), ({"usage": {"input_tokens": 70}}, (70, None), True)],
    ids=["nothing", "a part"],
)
def test_the_usage_of_an_answer_that_was_cut_off_is_partial_if_some_is_known(
    database, used, tokens, is_partial
):
    [run] = projected(database, RECORDING, *ASKS, STARTS, says("Past noon.") | used, CUTS)
    assert run[5:8] == (*tokens, is_partial)
    page = (Path(__file__).parents[2] / "infra" / "queries.md").read_text(encoding="utf-8")
    assert "at the start, and `runs.usage_partial` is set; OpenAI reports nothing" in " ".join(page.split())


def test_what_is_still_being_said_is_noted_and_nobody_waits_for_it(database):
    [run] = projected(database, RECORDING, *ASKS, STARTS, says("Past"))
    assert run[2] == "noted"


def test_in_a_mirror_too_an_answer_is_a_run_though_another_program_keeps_the_messages(database):
    mirror = {"type": "LLMMirrorFrame", "mirror": "my-app", "react": False}
    [run] = projected(database, mirror, *ASKS, STARTS, says("Past noon."), ENDS)
    assert run[1:8] == ("LLMFullResponseStartFrame", "ended", "my-model", "mine", 70, 7, False)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
