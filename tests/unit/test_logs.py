"""Logs: events with fields, formatted as the host process configures them."""

import io
import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from frameledger_services import logs


@pytest.fixture
def stream():
    """The stream of `configure`. Restores the logging of the process afterwards."""
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    before = (root.handlers, root.level, ours.level)
    yield io.StringIO()
    root.handlers = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_off_a_terminal_an_event_is_one_json_object_with_its_fields(stream):
    logs.configure("info", "auto", stream=stream)
    logs.get_logger("projector").warning("projector.fenced", partitions=[1, 2], topic="llm.frames")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "projector.fenced",
        "level": "warning",
        "logger": "frameledger.projector",
        "partitions": [1, 2],
        "topic": "llm.frames",
    }


def test_every_value_has_a_form_and_every_line_can_be_read(stream):
    logs.configure("info", "json", stream=stream)
    log = logs.get_logger("gateway")
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    log.info("gateway.read", at=at, error=ValueError("of this"), part={"after": "\ud800 é"}, many=2**70)
    log.info("gateway.read", names={1: "one"}, path=Path("a"))
    first, second = lines(stream)
    assert first["at"] == str(at)
    assert (first["error"], first["part"], first["many"]) == ("of this", {"after": "\ud800 é"}, 2**70)
    assert (second["names"], second["path"]) == ({"1": "one"}, "a")


def test_an_exception_comes_with_its_traceback(stream):
    logs.configure("info", "json", stream=stream)
    try:
        raise ValueError("of this")
    except ValueError:
        logs.get_logger("functions").exception("functions.hook_failed")
    (line,) = lines(stream)
    assert (line["level"], line["event"]) == ("error", "functions.hook_failed")
    assert line["exception"].endswith("ValueError: of this")


def test_the_level_holds_for_our_events_and_other_libraries_are_shown_from_warning_on(stream):
    logs.configure("debug", "json", stream=stream)
    logs.get_logger("worker").debug("worker.started")
    logging.getLogger("another.library").info("by the way")
    logging.getLogger("another.library").warning("%s broke", "it")
    logs.configure("error", "json", stream=stream)
    logs.get_logger("worker").warning("worker.started")
    assert [line["event"] for line in lines(stream)] == ["worker.started", "it broke"]


def test_for_people_it_is_a_line_with_the_name_first_and_its_fields(stream):
    logs.configure("info", "console", stream=stream)
    logs.get_logger("worker").info("worker.started", worker="w-1")
    assert "worker.started" in stream.getvalue()
    assert "w-1" in stream.getvalue()


@pytest.mark.regression("fault 80")
def test_for_people_a_traceback_has_no_values_of_variables_either(stream):
    logs.configure("info", "console", stream=stream)

    def handler(password, words):
        raise ValueError("of this")

    try:
        handler("hush" * 2, words=["private"] * 2)
    except ValueError:
        logs.get_logger("functions").exception("call.failed", tool_call_id="call-1")
        logging.getLogger("another.library").warning("it broke", exc_info=True)
    shown = stream.getvalue()
    assert shown.count("ValueError: of this") == shown.count("in handler") == 2
    assert "hushhush" not in shown
    assert "words" not in shown.replace('handler("hush" * 2, words=["private"] * 2)', "").replace(
        "def handler(password, words)", ""
    )


@pytest.mark.regression("fault 85")
def test_nothing_that_a_terminal_would_obey_is_in_a_line_for_people(stream):
    logs.configure("info", "console", stream=stream)
    obeyed = "a\x1b]0;mine\x07\x9b2J\rb"
    log = logs.get_logger("gateway")
    log.info("gateway.read", context_id=obeyed, part={"after": obeyed}, names=[obeyed])
    try:
        raise ValueError(f"of {obeyed}\nand more")
    except ValueError as error:
        log.error("gateway.request_failed", path=obeyed, reason=error, exc_info=True)
    logging.getLogger("another.library").warning("%s broke\nin two lines", obeyed)
    shown = stream.getvalue()
    # Colours are ours.
    left = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert [one for one in left if not one.isprintable() and one != "\n"] == []
    assert "\nand more" in left
    assert "broke\nin two lines" in left
    assert r"\x1b]0;mine" in left


def test_an_application_that_hosts_us_sees_everything_in_its_own_format(caplog):
    logs.get_logger("worker").warning("worker.lease_lost", worker="w-1", jobs=2, reason="100% %s")
    (record,) = caplog.records
    assert record.name == "frameledger.worker"
    assert record.getMessage() == "worker.lease_lost worker='w-1' jobs=2 reason='100% %s'"


def test_below_the_applications_level_nothing_is_logged(caplog):
    caplog.set_level(logging.ERROR, "frameledger.worker")
    logs.get_logger("worker").warning("worker.lease_lost")
    assert caplog.records == []


class Seen(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append(record.frameledger)


@pytest.mark.parametrize("path", ["/v1/contexts/a", "/v1/contexts/\ud83d"])
@pytest.mark.parametrize("constant", [(), ("path",), ("path", "status"), ("status",)])
def test_a_frequent_event_is_the_line_of_any_other(stream, constant, path):
    logs.configure("info", "json", stream=stream)
    fields = {"path": path, "status": 200}
    known = {name: fields.pop(name) for name in constant}
    logs.get_logger("gateway").info("gateway.read", **known, **fields)
    logs.FrequentEvent("gateway", "gateway.read", **known).log(**fields)
    line, quick = lines(stream)
    assert list(quick) == list(line)
    assert quick == line | {"timestamp": quick["timestamp"]}


@pytest.mark.regression("gateway 18")
@pytest.mark.parametrize("name", [None, logs.ROOT, f"{logs.ROOT}.gateway"])
def test_whoever_wants_the_records_of_a_frequent_event_has_them(stream, name):
    logs.configure("info", "json", stream=stream)
    wants, wanted = Seen(), logging.getLogger(name)
    wanted.addHandler(wants)
    try:
        logs.FrequentEvent("gateway", "gateway.read").log(status=200)
    finally:
        wanted.removeHandler(wants)
    assert wants.seen == [{"event": "gateway.read", "status": 200}]
    assert len(lines(stream)) == 1


@pytest.mark.regression("gateway 18")
@pytest.mark.parametrize("where", ["logger", "handler"])
def test_a_filter_holds_a_frequent_event_back(stream, where):
    def refuses(record):
        return False

    logs.configure("info", "json", stream=stream)
    [handler] = logging.getLogger().handlers
    filtered = handler if where == "handler" else logging.getLogger(f"{logs.ROOT}.gateway")
    filtered.addFilter(refuses)
    try:
        logs.FrequentEvent("gateway", "gateway.read").log(status=200)
    finally:
        filtered.removeFilter(refuses)
    assert lines(stream) == []
