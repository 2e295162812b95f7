"""`frameledger diff`: the changes between two versions, which applied to the first give the second."""

import json
import sys
from collections.abc import Iterator
from random import Random

import psycopg
import pytest
from tests.laws.strategies import conversation_of
from tests.support.batches import (
    Log,
    database_of_histories,  # noqa: F401  # a fixture
    project,
)
from tests.support.databases import made
from tests.support.tiers import every

from frameledger.fold import Conversation, Folding
from frameledger.frames import encode_frame
from frameledger.record import decode
from frameledger_services.cli.audit import diff
from frameledger_services.cli.terminal.pager import Page

SEEDS = range(12)
FRAMES = 70
TERMS = ("tools", "tool_choice", "settings")

BARGE_IN = """\
barge-in from version 11 to 12
+    3  assistant       There are two concerts: a brass band at seven,
"""
RESULT = """\
second-attempt from version 26 to 27
~    8  tool            p2: [-IN_PROGRESS-]{+{"left":"41.20"}+}
"""
REPLACED = """\
ambiguous-payments from version 42 to 43
The history was replaced: era 2 became era 3.
"""
TOOLS = """\
+       settings        seed 7
-       settings        temperature 0.9
"""


@pytest.fixture(scope="module")
def generated_talks(database_server, migrated_template) -> Iterator[str]:
    """A database with a generated conversation for each of the seeds."""
    log = Log()
    for seed in SEEDS:
        for value in generated(seed):
            log.add(name(seed), value)
    with made(database_server, template=migrated_template) as (_, address):
        project(address, log.records, sizes=(7, 64))
        yield address


def name(seed):
    return f"talk-{seed}"


def generated(seed):
    moves = Random(seed)
    frames = conversation_of((moves.getrandbits(31) for _ in range(FRAMES)), name(seed))
    return [encode_frame(frame) for frame in frames]


def folded_prefixes(seed):
    """Returns the contexts after 0, 1, 2 ... frames, from folding one frame after another."""
    folding = Folding(Conversation.new(name(seed)))
    contexts = [folding.conversation().context.to_wire()]
    for value in generated(seed):
        if folding.step(decode(value)) is not None:
            contexts.append(folding.conversation().context.to_wire())
    return contexts


@pytest.mark.parametrize("seed", every(4, SEEDS))
def test_the_context_at_every_version_of_a_random_conversation_is_the_fold_of_the_prefix(
    generated_talks, seed
):
    expected = folded_prefixes(seed)
    with psycopg.connect(generated_talks) as connection:
        for version, context in enumerate(expected):
            [(found,)] = connection.execute("SELECT context_at(%s, %s)::text", (name(seed), version))
            assert json.loads(found) == context


@pytest.mark.parametrize("seed", every(4, SEEDS))
def test_a_difference_applied_to_the_one_version_gives_the_other(generated_talks, seed):
    expected = folded_prefixes(seed)
    chance, last = Random(seed), len(expected) - 1
    with psycopg.connect(generated_talks) as connection:
        for _ in range(30):
            a, b = chance.randint(0, last), chance.randint(0, last)
            [(text,)] = connection.execute("SELECT context_diff(%s, %s, %s)::text", (name(seed), a, b))
            before, after = placed(connection, seed, a), placed(connection, seed, b)
            found = json.loads(text)
            for entry in found["removed"]:
                assert before.pop((entry["era"], entry["position"])) == entry["message"]
            for entry in found["replaced"]:
                assert before[entry["era"], entry["position"]] == entry["before"]
                before[entry["era"], entry["position"]] = entry["after"]
            for entry in found["added"]:
                assert (
                    before.setdefault((entry["era"], entry["position"]), entry["message"]) == entry["message"]
                )
            assert before == after
            assert [after[place] for place in sorted(after)] == expected[b]["messages"]
            terms = {one: expected[a][one] for one in TERMS}
            terms |= {one: found["terms"][one]["after"] for one in TERMS if one in found["terms"]}
            assert terms == {one: expected[b][one] for one in TERMS}


def placed(connection, seed, version):
    """The messages of a version, by era and position."""
    rows = connection.execute(
        "SELECT era, position, message::text FROM messages_at(%s, %s)", (name(seed), version)
    )
    return {(era, position): json.loads(message) for era, position, message in rows}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("barge-in 11 12", BARGE_IN),
        ("second-attempt 26 27", RESULT),
        ("ambiguous-payments 42 43", REPLACED),
        ("tool-changes 1", TOOLS),
        ("barge-in 6 7", "barge-in from version 6 to 7\nNothing changed.\n"),
    ],
)
def test_a_person_reads_what_changed(filled, command, words, expected):
    result = command(filled, "diff", *words.split())
    assert result.exit_code == 0, result.output
    assert expected in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.regression("journey 57")
def test_any_list_of_tools_has_a_difference(database, command):
    log = Log()
    for tools in (
        [{"function_declarations": [{"name": "a"}, {"name": "b"}]}],
        [{"name": "a"}, {"name": "a", "description": "again"}, {"x": 1, "y": 2}],
        [{"name": "a"}, {"name": "a", "description": "anew"}],
    ):
        log.add("ctx", json.dumps({"type": "LLMSetToolsFrame", "tools": tools}).encode())
    project(database, log.records)
    assert changed_tools(command(database, "diff", "ctx", 0, 1)) == ["+ a, b"]
    assert changed_tools(command(database, "diff", "ctx", 1, 2)) == [
        "+ a",
        "+ a (2)",
        "- a, b",
        '+ {"x": 1, "y": 2}',
    ]
    assert changed_tools(command(database, "diff", "ctx", 2, 3)) == ["~ a (2)", '- {"x": 1, "y": 2}']


@pytest.mark.regression("fault 104")
def test_each_limit_is_a_line_and_so_are_the_mirror_and_the_recording(database, command):
    log = Log()
    log.add("ctx", b'{"type":"LLMSetLimitsFrame","rounds":2,"context_messages":3}')
    log.add("ctx", b'{"type":"LLMSetLimitsFrame","rounds":4}')
    log.add("ctx", b'{"type":"LLMMirrorFrame","mirror":"a program","react":false}')
    project(database, log.records)
    lines = command(database, "diff", "ctx", 1, 3).stdout.splitlines()[1:]
    assert [" ".join(line.split()) for line in lines] == [
        "- limits context_messages 3",
        "~ limits rounds [-2-] {+4+}",
        '+ mirror "a program"',
        "~ recording [-false-] {+true+}",
    ]


def changed_tools(result):
    assert result.exit_code == 0, result.output
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()[1:]]
    assert [who for _, who, _ in lines] == ["tools"] * len(lines)
    return [f"{sign} {tool}" for sign, _, tool in lines]


def test_a_time_is_as_good_as_a_version(filled, command):
    by_version = command(filled, "diff", "barge-in", 11, 12).stdout
    by_time = command(
        filled, "diff", "barge-in", "2026-02-02T02:40:02.62Z", "2026-02-02T03:40:02.88+01:00"
    ).stdout
    assert by_time == by_version


def test_as_json_it_is_what_sql_says(filled, command):
    found = json.loads(command(filled, "diff", "ambiguous-payments", 20, "--json").stdout)
    with psycopg.connect(filled) as connection:
        [(said,)] = connection.execute("SELECT context_diff('ambiguous-payments', 20, 60)")
    assert found == {"context_id": "ambiguous-payments"} | said | {"eras": [2, 3]}


def test_a_conversation_or_version_that_is_not_there_is_named(filled, command):
    assert "It has 0 to 22" in command(filled, "diff", "barge-in", 3, 99).stderr
    assert "frameledger list" in command(filled, "diff", "nobody", 3).stderr
    assert command(filled, "diff", "barge-in", "yesterday").exit_code == 2


def test_changed_words_are_marked_in_color_on_a_terminal(capsys):
    entry = {"era": 1, "position": 3}
    found = {
        "eras": [1, 1],
        "removed": [],
        "added": [],
        "terms": {},
        "replaced": [
            entry
            | {
                "before": {"role": "assistant", "content": "The blue card"},
                "after": {"role": "assistant", "content": "The red card"},
            }
        ],
    }
    moment = type("Moment", (), {"context_id": "ctx", "version": 1})
    diff.render(Page(sys.stdout, 80, in_color=True), moment, moment, found)
    assert "The \x1b[9;31mblue\x1b[0m\x1b[1;32mred\x1b[0m card" in capsys.readouterr().out
