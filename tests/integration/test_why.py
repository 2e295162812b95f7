"""`frameledger why` and `runs`: a message leads back to the frames that wrote it, in recorded histories."""

import json
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
from tests.support.batches import (
    HISTORIES,
    Log,
    database_of_histories,  # noqa: F401  # a fixture
    project,
)
from tests.support.tiers import every
from tests.unit.rules import dsl
from tests.unit.rules.dsl import ask, begin, committed, end, flat, result, start, tokens

from frameledger.frames import (
    EndFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMSetToolsFrame,
    encode_frame,
)
from frameledger.tools import of_client
from frameledger_services.cli.audit.render_why import MAX_LINES

COLUMNS = 100
MANY_RUNS = "a-day-at-the-desk"

BARGE_IN = """\
barge-in: message 3 at version 22
  assistant     There are two concerts: a brass band at seven,
  written by    version 12, Interruption, 02:40:02.880
  streamed      3 frames of text, versions 7 to 10

Run 9c61dd04-afb3-53bf-b57f-7e9c4db21eed
  status        interrupted, attempt 1, meadow-2 of scripted, worker inference-1
  requested by  version 5, UserStoppedSpeaking, 02:40:01.060
  saw           version 5: frameledger show barge-in --at 5
  request       sha256 4020affa85a343babc049dd793508f61757df59220cf80b0d86bc14ea3956442
  times         requested 2026-02-02 02:40:01.060, started +0.3 s, text +0.5 s, closed +1.8 s

Thrown away
  never heard   "and a jazz trio at nine in the old boathouse."
  ignored       version 13, LLMText, 02:40:03.140, run_over: " Shall I book"

Causes
  version 12    Interruption
"""

SUPERSEDED = """\
second-attempt: message 6 at version 40
  assistant     I will check your card.
  written by    version 24, LLMFullResponseEnd, 02:40:06.160
  streamed      1 frame of text, version 21

Run 61ef70ad-19fc-5ce6-92bd-fedd5fd7b983
  status        ended (tool_calls), attempt 2, meadow-2-thinking of anthropic, worker inference-2
  requested by  version 4, UserStoppedSpeaking, 02:40:00.980
  saw           version 4: frameledger show second-attempt --at 4
  request       sha256 1c84904ed821bfca7e98563093af9fe7aadf095edc674859db9fcc8813b6fb8e
  times         requested 2026-02-02 02:40:00.980, started +2.9 s, text +4.4 s, closed +5.2 s
  tokens        109 input, 11 output, 54 cache read, 0 cache write

Thrown away
  attempt 1     superseded, 10 frames, versions 5 to 14: "Let me look that up. One moment."
  ignored       version 16, LLMText, 02:40:04.100, attempt_superseded: " Still"
  ignored       version 17, LLMFullResponseStart, 02:40:04.360, attempt_superseded
  ignored       version 23, LLMFullResponseEnd, 02:40:05.910, attempt_superseded
  ignored       version 33, LLMText, 02:40:08.300, run_over: "late"

Causes
  version 24    LLMFullResponseEnd
"""

AMBIGUOUS = """\
ambiguous-payments: message 4 at version 42
  assistant     pay({"bill":"rent"})
  written by    version 7, FunctionCallInProgress p1, 02:40:01.570

Call p1
  function      pay {"bill": "rent"}
  status        ambiguous, resolved at version 20, attempt 1, worker tools-1
  times         requested 2026-02-02 02:40:01.050, dispatched +0.3 s, started +0.5 s, settled +1.6 s
  frame         version 5, FunctionCallsStarted, 02:40:01.050
  ...           2 more; --json has all
  frame         version 11, FunctionCallResult p1, 02:40:02.610, attempt 2
  frame         version 20, FunctionCallResult p1, 02:40:04.950

Run e8e9e58c-780c-5f32-bcf7-5177807c9fbc
  status        ended (tool_calls), attempt 1, meadow-2 of scripted, worker inference-1
  requested by  version 2, LLMMessagesAppend, 02:40:00.270
  saw           version 2: frameledger show ambiguous-payments --at 2
  request       sha256 c55a8632199382c778ecdd2461da8538ad81c2135febe4d526d94c71ab523f49
  times         requested 2026-02-02 02:40:00.270, started +0.3 s, text +0.5 s, closed +1.0 s
  tokens        60 input, 9 output, 0 cache read

Thrown away
  ignored       version 10, FunctionCallInProgress p1, 02:40:02.350, attempt 2, tools-2, call_start…
  ignored       version 15, FunctionCallResult p1, 02:40:03.650, attempt 1, call_settled
  ignored       version 22, FunctionCallResult p1, 02:40:05.470, call_settled

Causes
  version 7     FunctionCallInProgress
"""

RUNS = """\
second-attempt at version 40: 3 runs
version  run       status          try  model           text_s  took_s      in     out  said
      4  61ef70ad  tool_calls        2  meadow-2-thin…     4.4     5.2     109      11  I will chec…
     27  392486d1  ended             1  meadow-2-thin…     0.5     1.2     133      10  There are 4…
     34  118b43f3  failed            2  meadow-2-thin…     0.8     0.9                  The other c…
"""


@pytest.fixture
def connection(filled) -> Iterator[psycopg.Connection]:
    with psycopg.connect(filled, autocommit=True) as connected:
        yield connected


@pytest.fixture
def command(filled, command):
    """Run a command against that database."""
    return partial(command, filled)


def explained(connection, context_id, position, version=None):
    [(found,)] = connection.execute("SELECT explain_message(%s, %s, %s)", (context_id, position, version))
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("why barge-in 3", BARGE_IN),
        ("why second-attempt 6", SUPERSEDED),
        ("why ambiguous-payments 4 --era 2", AMBIGUOUS),
        ("runs second-attempt", RUNS),
    ],
)
def test_a_person_reads_it_from_top_to_bottom(command, words, expected):
    result = command(*words.split())
    assert (result.exit_code, result.stdout) == (0, expected)


@pytest.mark.regression("journey 172")
def test_a_cancelled_call_names_the_interruption_that_cancelled_it(connection, command):
    found = connection.execute(
        "SELECT context_id, position, version FROM messages JOIN frames USING (context_id) "
        "JOIN tool_calls USING (context_id) WHERE status = 'cancelled' AND version = interrupted_version "
        "AND messages.valid_from = settled_version AND role = 'tool' AND text = 'CANCELLED' "
        "AND era = (SELECT max(era) FROM messages AS newest WHERE newest.context_id = messages.context_id)"
    ).fetchall()
    assert found
    for context_id, position, version in found:
        result = command("why", context_id, str(position))
        assert f"cancelled, interrupted at version {version}, " in result.stdout


@pytest.mark.parametrize("path", every(6, HISTORIES), ids=lambda path: path.stem)
def test_every_message_there_ever_was_leads_back_to_what_made_it(connection, path):
    rows = connection.execute(
        "SELECT era, position, valid_from, nullif(valid_to, 9223372036854775807), text, run_id, role FROM messages "
        "WHERE context_id = %s ORDER BY era, position, valid_from",
        (path.stem,),
    ).fetchall()
    assert rows
    for era, position in {row[:2] for row in rows}:
        readings = [row for row in rows if row[:2] == (era, position)]
        _, _, born, _, text, run_id, role = readings[0]
        found = explained(connection, path.stem, position, born)
        assert (found["era"], found["there"], found["role"]) == (era, True, role)
        assert [(one["from"], one["to"], one["text"]) for one in found["readings"]] == [
            r[2:5] for r in readings
        ]
        for one in found["readings"]:
            assert one["began_by"]["version"] == one["from"]
            assert (one["ended_by"] or {}).get("version") == one["to"]
        assert found["causes"][0]["version"] == born
        run, call = found["run"], found["call"]
        if run_id is not None:
            assert (found["from"], run["run_id"]) == ("run", run_id)
            assert born <= (run["closed_by"] or {"version": born})["version"] or run["said"] is None
            streamed = said_between(
                connection, path.stem, found["streamed"], found["readings"][0]["began_by"]
            )
            # An emoji may be streamed in two halves, and SQL has no text for either.
            if run["said"] is None and role == "assistant" and "\ufffd" not in streamed:
                assert "".join(streamed.split()) == "".join((text or "").split())
        elif call is not None:
            assert call["versions"]["requested"] <= born
            assert run is None or run["run_id"] == call["run_id"]
        elif role == "user" and found["heard"]:
            heard = " ".join(one["text"] for one in found["heard"])
            assert heard.split() == text.split()


def said_between(connection, context_id, streamed, born):
    """The text of the frames that, by the explanation, were streamed for a message."""
    rows = connection.execute(
        "SELECT json_text(payload, 'text'), type FROM frames WHERE context_id = %s AND version BETWEEN %s AND %s "
        "AND type LIKE %s AND outcome = 'applied' AND json_text(payload, 'append_to_context') IS DISTINCT FROM 'false' "
        "ORDER BY version",
        (
            context_id,
            streamed["from"],
            streamed["to"],
            "LLMThoughtText%" if born["type"] == "LLMThoughtEndFrame" else "%TextFrame",
        ),
    ).fetchall()
    return "".join(
        text
        for text, type_ in rows
        if (type_ == "LLMThoughtTextFrame") == (born["type"] == "LLMThoughtEndFrame")
    )


@pytest.mark.parametrize("path", every(6, HISTORIES[::3]), ids=lambda path: path.stem)
def test_an_explanation_is_at_most_forty_lines_of_a_hundred_columns(command, connection, path):
    places = connection.execute(
        "SELECT DISTINCT position, valid_from FROM messages WHERE context_id = %s ORDER BY valid_from",
        (path.stem,),
    ).fetchall()
    for position, version in places[:: max(1, len(places) // 12)]:
        result = command("why", path.stem, position, "--at", version)
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert len(lines) <= MAX_LINES
        assert max(map(len, lines)) <= COLUMNS


def test_each_position_that_show_lists_is_explained_by_why(command):
    """A reader goes from one to the other by the position."""
    shown = json.loads(command("show", "second-attempt", "--at", 20, "--json").stdout)
    for position, message in zip(shown["positions"], shown["messages"], strict=True):
        found = json.loads(command("why", "second-attempt", position, "--at", 20, "--json").stdout)
        reading = next(one for one in found["readings"] if one["from"] <= 20 and (one["to"] or 99) > 20)
        assert (found["there"], reading["message"]) == (True, message)


def test_a_conversation_or_version_that_is_not_there_is_named(command):
    for words, problem in (
        (("why", "nobody", 1), "no context 'nobody'"),
        (("why", "barge-in", 77), "has the position 77"),
        (("why", "barge-in", 1, "--era", 9), "no history number 9"),
        (("why", "barge-in", 1, "--at", 99), "no version 99"),
        (("runs", "nobody"), "no context 'nobody'"),
    ):
        result = command(*words)
        assert (result.exit_code, problem in result.stderr) == (1, True), result.output
    assert command("why", "barge-in", 1, "--era", 2, "--at", 3).exit_code == 2
    assert command("request", "second-attempt", "").exit_code == 2


@pytest.mark.regression("journey 60")
def test_a_position_that_no_message_can_have_is_named(command):
    result = command("why", "barge-in", 2**31)
    assert result.exit_code == 1
    assert result.stderr.startswith("No message of 'barge-in' has the position 2147483648 in the history of")


def test_a_prefix_of_several_runs_is_told_with_two_of_them(command, connection):
    (prefix,) = connection.execute(
        "SELECT left(run_id, 1) FROM runs WHERE context_id = %s GROUP BY 1 HAVING count(DISTINCT run_id) > 1 LIMIT 1",
        (MANY_RUNS,),
    ).fetchone()
    result = command("request", MANY_RUNS, prefix)
    assert result.exit_code == 1
    assert f"More than one run of '{MANY_RUNS}' begins with {prefix}:" in result.stderr


def test_a_message_that_is_not_there_yet_or_any_more_says_so(connection):
    assert explained(connection, "second-attempt", 3, 20)["there"] is False
    assert explained(connection, "second-attempt", 3, 9)["there"] is True
    assert explained(connection, "second-attempt", 99) is None
    assert explained(connection, "second-attempt", 3, 1_000) is None
    assert explained(connection, "nobody", 1) is None


def test_runs_as_json_have_all_that_the_table_has(command, connection):
    lines = [json.loads(line) for line in command("runs", "second-attempt", "--json").stdout.splitlines()]
    assert [one["attempt"] for one in lines] == [2, 1, 2]
    rows = connection.execute(
        "SELECT run_id, request_sha256 FROM runs WHERE context_id = 'second-attempt' ORDER BY requested_version"
    ).fetchall()
    assert [(one["run_id"], one["request_sha256"]) for one in lines] == rows


def test_a_call_keeps_to_its_own_frames_when_its_id_comes_again(connection):
    calls = connection.execute(
        "SELECT tool_call_id, requested_version, ordinal, settled_version FROM tool_calls "
        "WHERE context_id = 'reused-call-ids' ORDER BY requested_version, ordinal"
    ).fetchall()
    assert len({call[0] for call in calls}) < len(calls)
    for tool_call_id, requested, ordinal, _ in calls:
        [(found,)] = connection.execute(
            "SELECT explain_call('reused-call-ids', %s, %s)", (requested, ordinal)
        )
        later = [one[1] for one in calls if one[0] == tool_call_id and one[1] > requested]
        versions = [one["frame"]["version"] for one in found["frames"]]
        assert versions[0] == requested
        assert not later or max(versions) < min(later)


@pytest.mark.rule("RA5.client")
def test_the_messages_of_a_clients_call_lead_back_to_that_call_and_its_run(database):
    """Several calls start at the end of their run, and one at the result of the call before it in the queue."""
    schemas = [{"type": "function", "function": {"name": name}} for name in ("s", "a", "b", "c")]
    brought = LLMSetToolsFrame(tools=[schemas[0], *map(of_client, schemas[1:])])
    announced = FunctionCallsStartedFrame(
        function_calls=[
            FunctionCallFromLLM(tool_call_id=name, function_name=function, arguments={"text": "\x00"})
            for name, function in (('a"\n', "a"), ("b1", "b"), ("b12", "b"))
        ],
        run_id=dsl.run_id(2),
    )
    frames = [
        *(brought, ask(), start(2), tokens("Look.", run=2), announced, end(2)),
        *(ask(), committed("s", "c", run=7, run_in_parallel=False)),
        *(begin("s", sync=False, attempt=1), result("s", 1, attempt=1)),
    ]
    log = Log()
    for frame in flat(frames):
        log.add(dsl.CONTEXT, encode_frame(frame))
    project(database, log.records)
    with psycopg.connect(database, autocommit=True) as connection:
        came = []
        for position in range(1, 13):
            found = explained(connection, dsl.CONTEXT, position)
            of, run = found["call"] or {"tool_call_id": None}, found["run"] or {"run_id": None}
            came.append((found["from"], of["tool_call_id"], run["run_id"]))
    first, second = dsl.run_id(2), dsl.run_id(7)
    assert came == [
        ("run", None, first),
        *[("call", name, first) for name in ('a"\n', "b1", "b12") for _ in range(2)],
        *[("call", name, second) for name in ("s", "s", "s", "c", "c")],
    ]


@pytest.mark.regression("fault 137")
def test_a_call_that_ends_with_the_conversation_is_found_by_its_whole_id(database):
    """The end settles calls without naming them, and one of the ids is the beginning of another."""
    ids = ("call_1", "call_10", 'call_"1')
    frames = [
        ask(),
        committed(*ids, run=1),
        *(begin(name, sync=False, attempt=1) for name in ids),
        EndFrame(),
    ]
    log = Log()
    for frame in flat(frames):
        log.add(dsl.CONTEXT, encode_frame(frame))
    project(database, log.records)
    with psycopg.connect(database, autocommit=True) as connection:
        ends = connection.execute(
            "SELECT position, text FROM messages WHERE role = 'developer' ORDER BY position"
        ).fetchall()
        found = [explained(connection, dsl.CONTEXT, position)["call"]["tool_call_id"] for position, _ in ends]
    assert found == list(ids)
