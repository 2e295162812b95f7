"""`frameledger demo` as a user runs it, and that it fails if SQL is wrong."""

import asyncio
import html
import itertools
import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import psycopg
import pytest
from tests.bounds import PROGRAM
from tests.integration.test_embedded_up import Folder, servers_of_this_run, working
from tests.support.causation import not_as_promised, without_origin
from tests.support.projecting import make_topics, projecting
from tests.support.tiers import long
from tests.support.topic_prefixes import topic_prefix

from frameledger.frames import (
    FRAME_TYPES,
    EndFrame,
    InterruptionFrame,
    StartFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services.client import Client
from frameledger_services.demo import proof
from frameledger_services.demo.harbour import FILE, Harbour
from frameledger_services.demo.recording import CONVERSATION, FORGOTTEN
from frameledger_services.event_log import reader
from frameledger_services.settings import Settings
from frameledger_services.store.connections import connect

README = Path(__file__).resolve().parents[2] / "README.md"
PICTURE = README.parent / "infra" / "docs" / "demo.svg"
QUICKLY = ("demo", "--speed", "20")


@pytest.fixture
def folder(tmp_path):
    with working(tmp_path) as made:
        yield made


@pytest.mark.long
def test_stopped_by_ctrl_c_it_leaves_nothing_and_goes_on_with_the_servers_that_are_set(
    tmp_path, kafka, empty_database
):
    folder = Folder(tmp_path, **servers_of_this_run(kafka, empty_database))
    stopped_in_the_middle(folder, signal.SIGINT)
    assert {path.name for path in (tmp_path / ".frameledger").iterdir()}.isdisjoint({"kafka", "postgres"})


@pytest.mark.parametrize("stopped_before", [False, long(True)])
def test_it_shows_what_the_readme_says_also_begun_again_at_once_after_a_signal_and_leaves_nothing(
    folder, stopped_before
):
    if stopped_before:
        stopped_in_the_middle(folder, signal.SIGTERM)
    shown = folder.run(*QUICKLY)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "Verified: at all" in shown.stdout
    assert "Erased: demo-" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert folder.living() == []
    table = itertools.dropwhile(lambda line: "version  worker" not in line, shown.stdout.splitlines())
    runs = len(list(itertools.takewhile(str.strip, table))) - 1
    assert f"{runs} runs and 7 calls are settled" in " ".join(shown.stdout.split())

    printed = [without_chance(line) for line in shown.stdout.splitlines()]
    of_the_readme, answer_there = without_the_interrupted(block_of_the_readme())
    of_the_picture, answer_pictured = without_the_interrupted(lines_of_the_picture())
    _, heard = without_the_interrupted(shown.stdout.splitlines())
    assert heard.startswith("#assistantWearetwenty-five")
    for answer in (answer_there, answer_pictured):
        assert answer.startswith(heard) or heard.startswith(answer), (answer, heard)
    promised = [without_chance(line) for line in of_the_readme]
    assert len(promised) > 10
    assert [line for line in promised if line not in printed] == []
    joined = ["".join(line.split()) for line in printed]
    pictured = ["".join(without_chance(line).split()) for line in of_the_picture]
    assert len(pictured) > 40
    # How much of an answer has arrived when the demo prints it varies: its lines may break elsewhere, and other lines
    # may be between its parts.
    said = "".join(joined), words_of_the_assistant(shown.stdout.splitlines())
    assert [
        line
        for line in pictured
        if line not in joined and not any(line.removeprefix("#assistant") in one for one in said)
    ] == []


@pytest.mark.long
def test_beside_a_running_up_that_answers_it_brings_its_own_and_leaves_that_one_alone_to_go_on_with_it(
    tmp_path, kafka, empty_database
):
    """That `up` uses the servers of this test run, which makes no difference to the demo."""
    settings = servers_of_this_run(kafka, empty_database)
    folder = Folder(
        tmp_path, **settings, FRAMELEDGER_INFERENCE_PROVIDER="scripted", FRAMELEDGER_GATEWAY_OPENAI="true"
    )
    try:
        assert folder.run("up", "--detach").returncode == 0
        before = folder.processes()
        shown = folder.run(*QUICKLY)
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "of the running `frameledger up`" in " ".join(shown.stdout.split())
        assert {name: one["pid"] for name, one in folder.processes().items()} == {
            name: one["pid"] for name, one in before.items()
        }
        with folder.database() as connection:
            [(context_id,)] = connection.execute("SELECT context_id FROM contexts").fetchall()
            kinds = {kind for (kind,) in connection.execute("SELECT DISTINCT type FROM frames").fetchall()}
            # A run that the cough interrupts before a worker has begun it has no worker.
            workers = connection.execute(
                "SELECT split_part(worker, '/', 1) FROM runs WHERE worker IS NOT NULL UNION "
                "SELECT split_part(worker, '/', 1) FROM tool_calls WHERE worker IS NOT NULL"
            ).fetchall()
            attempts = connection.execute("SELECT max(attempt) FROM runs").fetchone()[0]
            [(call, settled_as, resolved)] = connection.execute(
                "SELECT tool_call_id, status, resolved_version IS NOT NULL FROM tool_calls "
                "WHERE function_name = 'order_breakfast'"
            ).fetchall()
            # The causes of every frame of a service lead back to a person or a program.
            assert without_origin(connection) == not_as_promised(connection) == []
            caused_by_hand = connection.execute(
                "SELECT frame.source, cause.type, cause.tool_call_id = frame.tool_call_id FROM frames AS frame "
                "JOIN frames AS cause ON cause.context_id = frame.context_id AND cause.frame_id = frame.causation_id "
                "WHERE frame.source IN ('frameledger/demo/purser', 'frameledger/demo/kitchen') ORDER BY 1"
            ).fetchall()
            voices = connection.execute(
                "SELECT DISTINCT cause.type FROM frames AS frame LEFT JOIN frames AS cause "
                "ON cause.context_id = frame.context_id AND cause.frame_id = frame.causation_id "
                "WHERE frame.type LIKE 'Bot%' ORDER BY 1"
            ).fetchall()
            alive = connection.execute(
                "SELECT service FROM live_workers() WHERE kind <> 'timekeeper'"
            ).fetchall()
        assert set(workers) == {(f"{context_id}.inference",), (f"{context_id}.functions",)}
        # No frame of the erased conversation is stored, not even the erasure.
        forgotten = kinds_in(FORGOTTEN) - kinds_in(CONVERSATION)
        assert "LLMContextEraseFrame" in forgotten
        assert kinds == {*FRAME_TYPES, "VendorTunnelAheadFrame"} - forgotten
        assert attempts == 2
        # Its worker was killed in the middle: it was started once, and a person resolved it.
        assert "kill -9" in shown.stdout
        assert (settled_as, resolved) == ("ambiguous", True)
        assert len(Harbour(tmp_path / ".frameledger" / FILE).bookings([call])) == 1
        assert caused_by_hand == [
            ("frameledger/demo/kitchen", "FunctionCallResultFrame", True),
            ("frameledger/demo/purser", "FunctionCallInProgressFrame", True),
        ]
        assert voices == [("LLMFullResponseStartFrame",), ("VisionFullResponseStartFrame",)]
        assert alive == [("inference-scripted",)]
        chat_goes_on(folder, context_id)
    finally:
        folder.run("down")
    assert folder.living() == []


@pytest.mark.long
def test_a_real_model_says_what_it_likes_and_the_proof_is_the_same(tmp_path, kafka, empty_database):
    with model_server() as address:
        settings = servers_of_this_run(kafka, empty_database)
        folder = Folder(tmp_path, **settings, OPENAI_API_KEY="k", OPENAI_BASE_URL=f"{address}/v1")
        shown = folder.run(*QUICKLY, "--provider", "openai", "--model", "a-model")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "a-model answers, with real functions" in shown.stdout
    assert "The passenger interrupts" in shown.stdout
    assert "A cough" not in shown.stdout
    assert "kill -9" not in shown.stdout
    assert "no worker was killed" in " ".join(shown.stdout.split())
    assert "Verified: at all" in shown.stdout
    assert "and 0 calls are settled" in " ".join(shown.stdout.split())
    assert folder.living() == []


@pytest.mark.parametrize("provider", ["openai", long("anthropic")])
def test_a_real_model_without_its_key_is_one_clear_sentence(tmp_path, provider):
    shown = Folder(tmp_path, OPENAI_API_KEY="", ANTHROPIC_API_KEY="").run("demo", "--provider", provider)
    assert shown.returncode == 1
    assert f"needs a key, and {provider.upper()}_API_KEY is not set" in shown.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_what_keeps_it_from_starting_is_said_with_exit_code_1(tmp_path):
    shown = Folder(tmp_path, FRAMELEDGER_JAVA="no java").run(*QUICKLY)
    assert shown.returncode == 1
    assert "There is no Java at no java" in shown.stderr
    assert "Time spent: servers" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_every_difference_between_sql_and_the_log_is_found_and_all_that_is_left_open(
    kafka, database, tmp_path
):
    settings = Settings(
        data_dir=tmp_path,
        kafka_bootstrap_servers=kafka.bootstrap_servers,
        database_url=database,
        topic_prefix=topic_prefix(),
        topic_partitions=4,
    )
    asyncio.run(find_differences(settings))


async def find_differences(settings):
    await make_topics(settings)
    async with projecting(settings), Client(settings) as client, await connect(settings) as connection:
        await client.publish("demo-b", StartFrame(), wait=True)
        [first] = await client.publish("demo-a", StartFrame(), wait=True)
        turn = [
            [UserStartedSpeakingFrame(), TranscriptionFrame(text=text), UserStoppedSpeakingFrame()]
            for text in ("Are we late?", "And now?")
        ]
        await client.publish("demo-a", *turn[0], *turn[1], InterruptionFrame(), EndFrame(), wait=True)
        log = [one for one in await reader.records_from(settings, first) if one.key == b"demo-a"]
        stored = [frame async for frame in client.frames("demo-a")]
        assert len(log) == len(stored) == 9

        async def found():
            return {
                (one.version, one.about) for one in await proof.differences(connection, "demo-a", log, stored)
            }

        assert await found() == set()
        assert await proof.left_open(connection, "demo-a") == ["No run was answered. The last error: none"]

        # A frame with other words than the stored one: from the end of its turn on, a message differs too.
        was = log[2]
        log[2] = replace(was, value=was.value.replace(b"late", b"early"))
        assert await found() == {(3, "bytes"), *((version, "context") for version in range(4, 10))}
        log[2] = was

        # One version too few, and one too many.
        last = log.pop()
        assert await found() == {(9, "context"), (0, "number of frames")}
        other = replace(last, value=last.value.replace(b'"id":"', b'"id":"x'))
        log += [last, other]
        assert await found() == {(10, "context"), (0, "number of frames")}
        log.pop()

        # A wrong message, an open run, and an order that was not placed, or placed twice.
        with psycopg.connect(settings.database_url.get_secret_value()) as writing:
            writing.execute(
                'UPDATE messages SET message = \'{"role": "user", "content": true}\' '
                "WHERE context_id = 'demo-a' AND valid_from = 7"
            )
            writing.execute(
                "UPDATE runs SET status = 'open' WHERE context_id = 'demo-a' AND requested_version = 4"
            )
            writing.execute(
                "INSERT INTO tool_calls (context_id, requested_version, ordinal, tool_call_id, function_name, status, "
                "arguments, requested_at, started_version) "
                "VALUES ('demo-a', 1, 0, 'call-1', 'order_breakfast', 'done', '{}', now(), 2)"
            )
        assert await found() == {(version, "context") for version in range(7, 10)}
        assert [
            re.sub(r"run [0-9a-f-]{36}", "run ...", one)
            for one in await proof.left_open(connection, "demo-a")
        ] == [
            "The run ... is open.",
            "No run was answered. The last error: none",
        ]
        harbour = Harbour(settings.data_dir / FILE)
        harbour.prepare()
        wrong = []
        for _ in range(3):
            wrong.append(await proof.wrong_effects(connection, "demo-a", harbour))
            harbour.book("call-1", 1, "breakfast", 14, "07:00")
        said = "The call call-1 of order_breakfast wrote {} bookings."
        assert wrong == [[said.format(0)], [], [said.format(2)]]


def stopped_in_the_middle(folder, number):
    """Begin a demo and send it a signal in the middle: it stops everything and says where the time went."""
    demo = folder.start("demo")
    shown = list(itertools.takewhile(lambda line: "Are we late?" not in line, iter(demo.stdout.readline, "")))
    assert demo.poll() is None, "".join(shown)
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=PROGRAM)
    assert demo.returncode == (130 if number == signal.SIGINT else 1)
    assert re.search(r"Time spent: servers .* s, conversation .* s", rest)
    assert "Traceback" not in rest
    assert folder.living() == []


def chat_goes_on(folder, context_id):
    """Continue the conversation with OpenAI's official client, with and without streaming."""
    messages = "SELECT context_at(context_id, version) -> 'messages' FROM contexts WHERE context_id = %s"
    with folder.database() as connection:
        [(of_the_demo,)] = connection.execute(messages, (context_id,)).fetchall()
    address = folder.processes()["gateway"]["address"]
    said: Any = {"model": "frameledger", "extra_body": {"conversation": {"id": context_id, "append": True}}}
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=PROGRAM) as client:
        first: Any = [{"role": "user", "content": "One more thing."}]
        whole = client.chat.completions.create(messages=first, **said)
        assert whole.choices[0].message.content == "You said: One more thing."
        then: Any = [{"role": "user", "content": "Is it on time?"}]
        chunks = client.chat.completions.create(messages=then, stream=True, **said)
        streamed = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(streamed) == "You said: Is it on time?"
    with folder.database() as connection:
        [(now,)] = connection.execute(messages, (context_id,)).fetchall()
    assert now == [
        *of_the_demo,
        *first,
        {"role": "assistant", "content": "You said: One more thing."},
        *then,
        {"role": "assistant", "content": "You said: Is it on time?"},
    ]


def kinds_in(recorded):
    """The types of the frames of a recorded conversation of the demo."""
    return {json.loads(line)["frame"]["type"] for line in recorded.read_text(encoding="utf-8").splitlines()}


@contextmanager
def model_server():
    """A server that speaks as OpenAI's API does, and always says the same; its address."""
    words = ["--tokens", "25", "--pace", "100"]
    running = subprocess.Popen(
        [sys.executable, "-m", "frameledger_services.bench.inference.model_server", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running.stdout.readline().strip()
    finally:
        running.communicate(timeout=PROGRAM)


def block_of_the_readme():
    """Returns the lines below `make demo` in the README, without the ellipses."""
    text = README.read_text(encoding="utf-8")
    block = re.search(r"^\$ make demo\n(.*?)^(?:```|\$ )", text, re.MULTILINE | re.DOTALL)[1]
    return [line for line in block.splitlines() if line and line.strip() != "..."]


def lines_of_the_picture():
    """Returns the lines of `demo.svg` except the first, without the ellipses."""
    text = PICTURE.read_text(encoding="utf-8")
    pieces = re.findall(r'<text class="demo-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', text)
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, piece in pieces:
        lines.setdefault(float(y), []).append((float(x), html.unescape(piece).replace("\xa0", " ")))
    joined = ["".join(piece for _, piece in sorted(lines[y])) for y in sorted(lines)]
    return [line for line in joined[1:] if line.strip() != "⋮"]


INTERRUPTION = "The passenger interrupts"


def without_the_interrupted(lines):
    """Returns the lines without the answer that the passenger interrupts, and that answer without its spaces: how much
    of it was heard varies."""
    others, answer, is_of_the_answer = [], "", False
    for before, line in itertools.pairwise(["", *lines]):
        is_of_the_answer = INTERRUPTION in before or (is_of_the_answer and is_continued(line))
        if is_of_the_answer:
            answer += "".join(without_chance(line).split())
        else:
            others.append(line)
    return others, answer


def words_of_the_assistant(lines):
    """All that the assistant says, without spaces."""
    words, is_said = "", False
    for line in lines:
        is_said = re.match(r" *\d+ +assistant ", line) is not None or (is_said and is_continued(line))
        if is_said:
            words += "".join(without_chance(line).split()).removeprefix("#assistant")
    return words


def is_continued(line):
    """Whether the line goes on with the message of the line before: it has neither a version nor a heading."""
    return re.match(r" *(\d|──)", line) is None


def without_chance(line):
    """Returns the line without what differs between runs: the context's name, ports, durations and versions."""
    for pattern, word in (
        (r"demo-[0-9a-f]{6}", "demo-..."),
        (r"127\.0\.0\.1:\d+", "address"),
        (r"[\d.]+ (ms|s)\b", r"some \1"),
        # The number of frames of an answer varies, and so does every version after it.
        (r"\b\d+\b", "#"),
        (r" +", " "),
    ):
        line = re.sub(pattern, word, line)
    return line.rstrip()
