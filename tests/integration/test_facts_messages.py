"""The fact views, `verify` and `rebuild` on messages that clients wrote: any JSON that a frame may carry."""

import json
import re
from pathlib import Path

import psycopg
import pytest
from tests.integration.test_verify import verified
from tests.support.batches import Log, project
from typer.testing import CliRunner

from frameledger import derived
from frameledger.ids import ContextId, Version
from frameledger_services.cli import application

FACTS = ("facts_messages", "facts_turns", "facts_runs", "facts_calls", "facts_conversations")
RUN = derived.run_id(ContextId("talk"), Version(1))


def answered(*texts, then=()):
    """A log with one answered question, and further frames."""
    log = Log()
    for fields in (
        {"type": "LLMMessagesAppendFrame", "messages": [said("user", "hi")], "run_llm": True},
        {"type": "LLMFullResponseStartFrame", "run_id": RUN, "attempt": 1, "provider": "p", "model": "m"},
        *({"type": "LLMTextFrame", "run_id": RUN, "attempt": 1, "text": text} for text in texts),
        {"type": "LLMFullResponseEndFrame", "run_id": RUN, "attempt": 1, "finish_reason": "stop"},
        *then,
    ):
        log.add("talk", json.dumps(fields).encode())
    return log.records


def said(role, content, **fields):
    return {"role": role, "content": content} | fields


def rewrite(position, message):
    return {"type": "LLMMessageRewriteFrame", "position": position, "message": message}


@pytest.fixture
def with_nul(database):
    """Store a conversation whose answer has a NUL, which is legal in JSON and not in PostgreSQL's text, and was
    replaced."""
    project(database, answered("a\x00b", "\ud83d", "\ude00", then=[rewrite(2, said("assistant", "heard"))]))
    return database


@pytest.mark.regression("fault 18")
@pytest.mark.parametrize("view", FACTS)
def test_a_nul_in_an_answer_leaves_every_fact_readable(with_nul, view):
    with psycopg.connect(with_nul) as connection:
        rows = connection.execute(f"SELECT * FROM {view} WHERE context_id = 'talk'").fetchall()
    assert bool(rows) == (view != "facts_calls")


def test_an_answer_with_a_nul_is_shown_without_it(with_nul):
    with psycopg.connect(with_nul) as connection:
        found = connection.execute("SELECT generated, heard FROM facts_runs").fetchall()
    assert found == [("a\ufffdb\U0001f600", "heard")]


@pytest.mark.regression("fault 18")
def test_verify_and_rebuild_read_a_replaced_message_with_a_nul(with_nul, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", with_nul)
    assert verified(with_nul, "talk")["talk"].differences.in_order() == []
    for command in (["verify", "--all"], ["rebuild"]):
        done = CliRunner().invoke(application(), command)
        assert done.exit_code == 0, done.output + done.stderr


NO_CALLS = {"absent": {}, "null": {"tool_calls": None}, "empty": {"tool_calls": []}}


@pytest.mark.regression("fault 19")
@pytest.mark.parametrize("fields", NO_CALLS.values(), ids=NO_CALLS)
def test_an_answer_without_calls_is_shown_however_its_message_says_so(database, fields):
    """SDKs dump a message without calls with `tool_calls` null or empty."""
    turn = {
        "type": "LLMMessagesAppendFrame",
        "messages": [said("user", "more"), said("assistant", "Hello") | fields],
    }
    project(database, answered("fine", then=[rewrite(2, said("assistant", "heard") | fields), turn]))
    with psycopg.connect(database) as connection:
        turns = connection.execute("SELECT user_said, answer FROM facts_turns ORDER BY version").fetchall()
        runs = connection.execute("SELECT generated, heard FROM facts_runs").fetchall()
    assert turns == [("hi", "heard"), ("more", "Hello")]
    assert runs == [("fine", "heard")]
    assert verified(database, "talk")["talk"].differences.in_order() == []


def calling(content):
    """A frame with a message that calls a function beside this content, and the result."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [said("assistant", content, tool_calls=[call]), said("tool", "1", tool_call_id="c1")]
    return {"type": "LLMMessagesAppendFrame", "messages": messages}


NO_WORDS = {
    "null": None,
    "empty": "",
    "blank": " \n",
    "no parts": [],
    "blank parts": [{"type": "text", "text": " \n\t"}],
    "an image": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
    "empty parts": [{"type": "text", "text": ""}, {"type": "text", "text": ""}],
}


@pytest.mark.regression("journey 58")
@pytest.mark.parametrize("content", NO_WORDS.values(), ids=NO_WORDS)
def test_a_message_that_only_calls_is_shown_by_its_calls_and_is_no_answer(database, content):
    project(database, answered("fine", then=[calling(content)]))
    with psycopg.connect(database) as connection:
        texts = connection.execute("SELECT text FROM messages ORDER BY position").fetchall()
        assert connection.execute("SELECT answer FROM facts_turns").fetchall() == [("fine",)]
    assert texts[2] == ("look({})",)


WORDS = {
    "text": "Let me see",
    "with a mark": "[pause] Let me see",
    "with a NUL": "Let\x00me see",
    "parts": [{"type": "text", "text": ""}, {"type": "text", "text": " \nLet me see"}],
    "a quote": [{"type": "text", "text": '"Let me see'}],
    "like parts": '[{"key": 1}] Let me see',
}


@pytest.mark.regression("journey 58")
@pytest.mark.regression("fault 138")
@pytest.mark.parametrize("content", WORDS.values(), ids=WORDS)
def test_what_a_message_says_beside_its_calls_is_part_of_the_answer(database, content):
    ran = [{"type": "LLMFullResponseStartFrame", "model": "m"}, calling(content)]
    ran += [{"type": "LLMTextFrame", "text": "It is 1."}, {"type": "LLMFullResponseEndFrame"}]
    project(database, answered("fine", then=ran))
    with psycopg.connect(database) as connection:
        [(words,)] = connection.execute("SELECT text FROM messages WHERE message::text ~ 'look'").fetchall()
        turns = connection.execute("SELECT answer FROM facts_turns").fetchall()
        runs = connection.execute("SELECT generated, heard FROM facts_runs WHERE run_id <> %s", (RUN,))
        assert words.endswith("me see")
        assert turns == [(f"fine {words} It is 1.",)]
        assert runs.fetchall() == [(f"{words} It is 1.",) * 2]


@pytest.mark.regression("journey 58")
@pytest.mark.parametrize("text", ["", None])
def test_verify_takes_the_empty_text_that_older_releases_wrote_of_a_message_that_calls(database, text):
    project(database, answered("fine", then=[calling([] if text is None else "")]))
    with psycopg.connect(database, autocommit=True) as connection:
        for stored, fields in ((text, []), ("other", ["text"])):
            connection.execute("UPDATE messages SET text = %s WHERE message::text ~ 'look'", (stored,))
            found = verified(database, "talk", again=True)["talk"].differences.in_order()
            assert [one.field for one in found] == fields


def test_verify_takes_no_empty_text_of_a_message_that_says_something(database):
    project(database, answered("fine", then=[calling("Let me see")]))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE messages SET text = '' WHERE message::text ~ 'look'")
    assert verified(database, "talk")["talk"].differences.count == 1


@pytest.mark.regression("fault 20")
def test_a_rewritten_message_of_a_user_is_one_turn_with_its_newest_text_and_its_first_times(database):
    before = answered("fine")
    project(database, before)
    asked = "SELECT version, position, said_at, run_id, status, answer FROM facts_turns"
    with psycopg.connect(database, autocommit=True) as connection:
        [first] = connection.execute(asked).fetchall()
        later = answered("fine", then=[rewrite(1, said("user", text)) for text in ("hi there", "hello")])
        project(database, later[len(before) :])
        assert connection.execute(asked).fetchall() == [first]
        assert connection.execute("SELECT user_said FROM facts_turns").fetchall() == [("hello",)]
    assert first[3:] == (RUN, "ended", "fine")


def test_a_message_that_became_one_of_a_user_is_a_turn_since_then(database):
    then = [
        {"type": "LLMMessagesAppendFrame", "messages": [said("developer", "note")]},
        rewrite(3, said("user", "a question")),
    ]
    project(database, answered("fine", then=then))
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT version, user_said FROM facts_turns ORDER BY version").fetchall()
    assert found == [(1, "hi"), (6, "a question")]


OF_OPENAI = [
    (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "At \x00ten."}]},
        "At \ufffdten.",
    ),
    ({"role": "user", "content": "Plain", "id": "msg_1"}, "Plain"),
    ({"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}, "I cannot."),
    ({"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":1}'}, 'look({"a":1})'),
    ({"type": "function_call_output", "call_id": "c1", "output": "22:40"}, "22:40"),
    ({"type": "function_call_output", "output": [{"type": "input_text", "text": "22:40"}, 7]}, "22:40"),
    ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}, "I look."),
    ({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, None),
    ({"type": "nobody_knows_this", "content": {"text": "x"}}, None),
]


@pytest.mark.regression("bridge 23")
def test_an_item_of_openai_has_its_text_and_one_without_it_of_an_older_release_is_no_difference(database):
    messages = [{"llm": "openai-responses", "message": item} for item, _ in OF_OPENAI]
    project(database, answered("fine", then=[{"type": "LLMMessagesAppendFrame", "messages": messages}]))
    asked = "SELECT text FROM facts_messages WHERE role = 'openai-responses' ORDER BY position"
    with psycopg.connect(database, autocommit=True) as connection:
        assert [text for (text,) in connection.execute(asked)] == [text for _, text in OF_OPENAI]
        connection.execute("UPDATE messages SET text = NULL WHERE role = 'openai-responses'")
        assert verified(database, "talk")["talk"].differences.in_order() == []
        connection.execute("UPDATE messages SET text = 'another' WHERE role = 'openai-responses'")
        assert len(verified(database, "talk")["talk"].differences.in_order()) == len(OF_OPENAI)


@pytest.mark.regression("journey 156")
def test_a_question_that_was_copied_is_counted_where_it_was_asked(database):
    """Forks and reruns begin with the messages of another conversation, and a replayed copy has each of its frames."""
    question, more = {"messages": [said("user", "hi")]}, {"messages": [said("user", "and now?")]}
    append = {"type": "LLMMessagesAppendFrame"}
    fork = {
        "type": "LLMContextFrame",
        "forked_from": {"context_id": "asked", "version": 1, "chain": "ab" * 32},
    }
    log = Log()
    for context_id, fields in (
        ("asked", append | question),
        ("brought", {"type": "LLMContextFrame", "context": question}),
        ("fork", fork | {"context": question}),
        ("fork", append | more),
        ("fork", append | more | {"metadata": {"note": {"replay_of": 1}}}),
        ("fork", append | more | {"metadata": {"note": "\0 \ud800"}}),
        ("replayed", fork | {"context": {}, "react": False}),
        ("replayed", append | question | {"metadata": {"replay_of": {"context_id": "asked", "version": 1}}}),
    ):
        log.add(context_id, json.dumps(fields).encode())
    project(database, log.records)
    expected = [
        ("asked", 1, False),
        ("brought", 1, False),
        *(("fork", 1, True), ("fork", 2, False), ("fork", 3, False), ("fork", 4, False)),
        ("replayed", 2, True),
    ]
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT context_id, version, is_copy FROM facts_turns ORDER BY 1, 2")
        assert rows.fetchall() == expected


@pytest.mark.regression("journey 160")
def test_calls_that_were_copied_or_never_ran_can_be_left_out_as_the_page_says(database):
    """In a rerun no function runs; a call of a fork is one of its own."""
    page = (Path(__file__).parents[2] / "infra/queries.md").read_text(encoding="utf-8")
    [condition] = re.findall("AND (\\(SELECT NOT recording .*)", page)
    calls = [{"function_name": "pay", "tool_call_id": "c1", "arguments": {}}]
    announces = {"type": "FunctionCallsStartedFrame", "function_calls": calls}
    origin = {"context_id": "real", "version": 1, "chain": "ab" * 32}
    fork = {"type": "LLMContextFrame", "context": {}, "forked_from": origin}
    log = Log()
    for context_id, *both in (
        ("fork", fork, announces),
        ("real", {"type": "StartFrame"}, announces),
        (
            "replayed",
            fork | {"react": False},
            announces | {"metadata": {"replay_of": {"context_id": "real", "version": 2}}},
        ),
        ("rerun", fork | {"react": False, "metadata": {"experiment": {"kind": "rerun"}}}, announces),
    ):
        for fields in both:
            log.add(context_id, json.dumps(fields).encode())
    project(database, log.records)
    with psycopg.connect(database) as connection:
        found = connection.execute(f"SELECT context_id FROM facts_calls AS call WHERE {condition} ORDER BY 1")
        assert found.fetchall() == [("fork",), ("real",)]
