"""`frameledger chat` in a terminal, with the real services: its output, and the resulting context."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime

import psycopg
import pytest
from tests.bounds import PROGRAM
from tests.support import full_pipeline
from tests.support.forked_command import CommandInTerminal
from tests.support.gateway import running

from frameledger.context import LLMContext
from frameledger.frames import ErrorFrame, LLMSetToolsFrame
from frameledger.tools import of_client
from frameledger_services.client import SyncClient
from frameledger_services.embedded import ports
from frameledger_services.gateway.access import tokens
from frameledger_services.providers.pairing import paired
from frameledger_services.settings_sources import load
from frameledger_services.store.contexts import NoSuchContextError

SCRIPT = {
    "pace": 30,
    "replies": [
        {"when": {"user": "count"}, "say": [{"text": " ".join(f"number-{n}" for n in range(1, 4000))}]},
        {"when": {"user": "late"}, "say": [{"text": "I look."}, {"call": "train_position"}]},
        {"when": {"result_of": "train_position"}, "say": [{"text": "By twenty-five minutes."}]},
        {"when": {"user": "hold"}, "say": [{"call": "hold_ferry", "arguments": {"leaves": "06:40"}}]},
        {"when": {"result_of": "hold_ferry"}, "say": [{"text": "He is being asked."}]},
        {"when": {"user": "paint"}, "say": [{"call": "paint"}]},
        {"when": {"user": "bell"}, "say": [{"text": "Ring \u0007\u001b[2J it."}]},
        {"when": {"user": "break"}, "say": [{"fail": "refused_context", "message": "That is too much."}]},
        {"say": [{"text": "Yes, of course."}]},
    ],
}


@pytest.fixture(scope="module")
def stage(kafka, database_server, migrated_template, tmp_path_factory):
    """The environment of commands, on a pipeline with a model and functions."""
    servers = (kafka.bootstrap_servers, database_server, migrated_template)
    with full_pipeline.made(*servers, tmp_path_factory.mktemp("chat"), SCRIPT, "--models", "owl") as pipeline:
        yield pipeline.environment | {"TERM": "xterm"}


def command(*words):
    return [sys.executable, "-m", "frameledger_services", *words]


class Terminal:
    """A chat in a terminal of 100 columns."""

    def __init__(self, environment, *words):
        self.shown = ""
        self._read = 0
        self._file, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        # Closed only after the command has opened it: a terminal that no process has open hangs up.
        self._process = CommandInTerminal(("chat", *words), environment, os.ttyname(inner))
        self._inner = inner

    def type(self, text):
        os.write(self._file, text.encode())

    def until(self, words):
        """Wait until these words are shown, after those of the last call. Returns what was shown up to them."""
        until = time.monotonic() + PROGRAM
        while (found := plain(self.shown).find(words, self._read)) < 0:
            assert time.monotonic() < until, (words, self.shown)
            self._more()
        before, self._read = self._read, found + len(words)
        return plain(self.shown)[before : self._read]

    def ended(self):
        """Wait for its end. Returns its exit code."""
        until = time.monotonic() + PROGRAM
        while self._process.is_alive():
            assert time.monotonic() < until, self.shown
            self._more()
        self._more()
        os.close(self._inner)
        os.close(self._file)
        return self._process.ended()

    def kill(self):
        self._process.kill()

    def _more(self):
        ready, _, _ = select.select([self._file], [], [], 0.2)
        if ready:
            try:
                self.shown += os.read(self._file, 65536).decode(errors="replace")
            except OSError:
                # Its other end is closed.
                return


@pytest.fixture
def chat(stage):
    """Returns a function that begins a chat. All are ended with the test."""
    begun = []

    def begin(*words):
        begun.append(Terminal(stage, *words))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


def plain(shown):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r\n", "\n")


def context(stage, context_id):
    with psycopg.connect(stage["FRAMELEDGER_DATABASE_URL"]) as connection:
        query = "SELECT context_at(%s, version) FROM contexts WHERE context_id = %s"
        return connection.execute(query, (context_id, context_id)).fetchone()[0]


def said(stage, context_id):
    return [(one["role"], one.get("content")) for one in context(stage, context_id)["messages"]]


def test_a_line_is_a_turn_and_its_answer_is_printed_as_it_comes(stage, chat):
    talk = chat("plain", "--system", "Be brief.", "--model", "owl", "--no-tools")
    talk.until("a new conversation")
    talk.until("> ")
    talk.type("Is anybody there?\n")
    talk.until("Yes, of course.\n> ")
    talk.type("\x04")
    assert talk.ended() == 0
    assert said(stage, "plain") == [("user", "Is anybody there?"), ("assistant", "Yes, of course.")]
    assert context(stage, "plain")["settings"] == {"system_instruction": "Be brief.", "model": "owl"}

    again = chat("plain")
    assert "new" not in again.until("> ")
    again.type("\x03")
    assert again.ended() == 0


@pytest.mark.parametrize("over_http", [False, True])
def test_a_call_of_a_client_is_said_to_wait_for_it(stage, chat, over_http):
    settings, context_id = load(stage).settings, f"easel-{over_http}"
    paint = of_client({"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}})
    with SyncClient(settings) as client:
        client.publish(context_id, LLMSetToolsFrame(tools=[paint]), wait=True)
    with running(settings, gateway_port=str(ports.choose(0))) as gateway:
        talk = chat(context_id, *(("--url", gateway.address) if over_http else ()))
        talk.until("> ")
        talk.type("Please paint it.\n")
        shown = talk.until("--result JSON\n> ")
        assert "\n  paint waits for the client; answer it:\n  frameledger calls answer easel-" in shown
        talk.type("\x04")
        assert talk.ended() == 0


@pytest.mark.regression("journey 26")
def test_ctrl_c_during_an_answer_keeps_what_was_printed_and_the_chat_goes_on(stage, chat):
    talk = chat("cut", "--no-tools")
    talk.until("> ")
    talk.type("Please count.\n")
    talk.until("number-1 number-2 number-3")
    talk.type("\x03")
    shown = talk.until("\nInterrupted.\n> ")
    printed = "number-1 number-2 number-3" + shown.partition("\nInterrupted.")[0].replace("^C", "")
    printed = printed.strip()
    talk.type("Thanks.\n")
    talk.until("Yes, of course.\n> ")
    talk.type("\x03")
    assert talk.ended() == 0

    messages = context(stage, "cut")["messages"]
    assert messages[1] == {"role": "assistant", "content": printed}
    assert "number-3999" not in printed
    assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant"]
    assert list(paired(LLMContext.from_wire(context(stage, "cut")).to_wire()["messages"])) == messages
    with psycopg.connect(stage["FRAMELEDGER_DATABASE_URL"]) as connection:
        runs = "SELECT status FROM runs WHERE context_id = 'cut' ORDER BY requested_version"
        assert connection.execute(runs).fetchall() == [("interrupted",), ("ended",)]


@pytest.mark.long
@pytest.mark.rule("R7.3", "R7.4")
def test_a_line_during_an_answer_does_what_was_asked_for(stage, chat):
    talk = chat("second", "--no-tools", "--second-input", "reject")
    talk.until("> ")
    talk.type("Please count.\n")
    talk.until("number-1 number-2 number-3")
    talk.type("And me?\n")
    talk.until("\nRejected: an answer is in progress.\n")
    talk.until("number-")
    talk.type("\x03")
    talk.until("\nInterrupted.\n> ")
    talk.type("\x03")
    assert talk.ended() == 0
    assert [one["role"] for one in context(stage, "second")["messages"]] == ["user", "assistant"]

    talk = chat("second", "--second-input", "interrupt")
    talk.until("> ")
    talk.type("Please count.\n")
    talk.until("number-1 number-2 number-3")
    talk.type("Thanks.\n")
    talk.until("\nInterrupted.\n")
    talk.until("Yes, of course.\n> ")
    talk.type("\x03")
    assert talk.ended() == 0
    *_, cut, thanks, last = context(stage, "second")["messages"]
    assert cut["content"].startswith("number-1 number-2 number-3")
    assert "number-3999" not in cut["content"]
    assert (thanks["content"], last["content"]) == ("Thanks.", "Yes, of course.")


def test_functions_are_announced_and_their_results_shown_in_a_line_each(stage, chat):
    talk = chat("functions")
    assert "train_position" in talk.until("> ")
    talk.type("Are we late?\n")
    shown = talk.until("By twenty-five minutes.\n> ")
    lines = [line for line in shown.splitlines() if "train_position" in line]
    assert lines == ["  train_position {}", '  train_position = {"late_minutes": 25, "arrival": "06:31"}']
    assert shown.index("I look.") < shown.index(lines[0])

    # A function that continues in the background: the prompt comes back, and its report is printed when it arrives.
    talk.type("Let them hold the ferry.\n")
    talk.until("  hold_ferry = ")
    talk.until("He is being asked.\n> ")
    talk.type("\x04")
    assert talk.ended() == 0


@pytest.mark.regression("journey 26")
def test_the_prompt_comes_back_after_a_line_about_what_goes_on_in_the_background(stage, chat):
    talk = chat("background", "--no-tools", "--system", "Be brief.")
    talk.until("> ")
    with SyncClient(load(stage).settings) as client:
        client.publish("background", ErrorFrame(message="The heating is out."), wait=True)
    talk.until("The heating is out.\n> ")
    talk.type("Is anybody there?\n")
    talk.until("Yes, of course.\n> ")
    talk.type("\x04")
    assert talk.ended() == 0


def test_what_goes_wrong_is_said_and_nothing_reaches_the_terminal_that_it_would_obey(stage, chat):
    talk = chat("wrong", "--no-tools")
    talk.until("> ")
    talk.type("Will you break?\n")
    talk.until("That is too much.\n> ")
    talk.type("Ring the bell.\n")
    talk.until("Ring \ufffd\ufffd[2J it.\n> ")
    talk.type("\x04")
    assert talk.ended() == 0
    assert "\x1b[2J" not in talk.shown
    assert "\x07" not in talk.shown


def test_that_nobody_answers_is_said_and_ctrl_c_gives_up(stage, chat):
    talk = chat("nobody", "--model", "dodo", "--no-tools")
    talk.until("> ")
    talk.type("Hello?\n")
    shown = talk.until("Ctrl-C cancels.\n")
    assert "none serves the model dodo" in " ".join(shown.split())
    talk.type("\x03")
    talk.until("> ")
    talk.type("\x03")
    assert talk.ended() == 0
    assert said(stage, "nobody") == [("user", "Hello?")]


def test_input_may_be_a_pipe_and_what_comes_during_an_answer_is_said_after_it(stage):
    done = subprocess.run(
        command("chat", "pipe", "--no-tools"),
        input="One?\n\nTwo?",
        env=stage,
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert done.returncode == 0, done.stderr
    # On a slow machine the warning that no answer has started may be printed.
    shown = re.sub(r"No answer started within .*?Ctrl-C cancels\.\n", "", done.stdout, flags=re.DOTALL)
    assert "> One?\nYes, of course.\n> Two?\nYes, of course.\n" in shown
    assert [who for who, _ in said(stage, "pipe")] == ["user", "assistant", "user", "assistant"]


@pytest.mark.long
def test_over_http_it_is_the_same_without_kafka_and_a_database(stage, chat, tmp_path):
    settings = load(stage).settings
    nowhere = ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL", "TOPIC_PREFIX", "DATA_DIR")
    environment = {name: value for name, value in stage.items() if not name.endswith(nowhere)}
    token = tokens.create(tmp_path / "tokens", "chat", ("read", "append"), now=datetime.now(UTC))[1]
    also = {"gateway_port": str(ports.choose(0)), "gateway_tokens_file": str(tmp_path / "tokens")}
    with running(settings, **also) as gateway:
        environment |= {"FRAMELEDGER_URL": gateway.address, "FRAMELEDGER_DATA_DIR": str(tmp_path)}

        def tail(*words):
            return subprocess.run(
                command("tail", *words), env=environment, capture_output=True, text=True, timeout=PROGRAM
            )

        unknown = tail("over-http")
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert "Set FRAMELEDGER_TOKEN to a token of `frameledger token new`." in unknown.stderr
        environment["FRAMELEDGER_TOKEN"] = token
        assert str(NoSuchContextError("over-http")) in tail("over-http").stderr
        assert "The raw log cannot be read over HTTP" in tail().stderr

        talk = Terminal(environment, "over-http", "--model", "owl")
        try:
            assert "train_position" in talk.until("> ")
            talk.type("Are we late?\n")
            assert '  train_position = {"late_minutes": 25' in talk.until("By twenty-five minutes.\n> ")
            talk.type("Please count.\n")
            talk.until("number-1 number-2 number-3")
            talk.type("\x03")
            talk.until("\nInterrupted.\n> ")
            talk.type("\x04")
            assert talk.ended() == 0
        finally:
            talk.kill()
        shown = tail("over-http", "-n", "1000")
        assert shown.returncode == 0, shown.stderr
        as_json = [json.loads(line) for line in tail("over-http", "-n", "1000", "--json").stdout.splitlines()]
        # The same by SQL, which an empty address selects.
        environment |= stage
        assert tail("over-http", "-n", "1000", "--url", "").stdout == shown.stdout
    assert "Interruption" in shown.stdout
    assert [one["version"] for one in as_json] == list(range(1, len(as_json) + 1))
    assert said(stage, "over-http")[-1][1].startswith("number-1 number-2 number-3")


@pytest.mark.long
def test_without_a_database_one_sentence_says_so(stage):
    environment = stage | {"FRAMELEDGER_DATABASE_URL": "postgresql://127.0.0.1:1/nothing"}
    done = subprocess.run(
        command("chat"),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
