"""What a request says about itself in headers."""

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from frameledger_services.gateway import preferences
from frameledger_services.gateway.media_types import NDJSON
from frameledger_services.gateway.problems import ProblemError


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        ((), preferences.WAIT_SECONDS),
        (("wait=2",), 2),
        (("respond-async",), 0),
        (("respond-async, wait=2",), 2),
        (("wait=2, respond-async",), 2),
        (("respond-async", 'wait="2"; strict'), 2),
        (("wait=100",), 10),
        (("wait=soon",), preferences.WAIT_SECONDS),
    ],
)
def test_a_time_to_wait_wins_over_an_answer_at_once(prefer, seconds):
    headers = [(b"prefer", one.encode()) for one in prefer]
    assert preferences.wait_seconds(Request({"type": "http", "headers": headers}), 10) == seconds


@pytest.mark.regression("gateway 110")
@pytest.mark.parametrize(
    ("prefer", "seconds"), [("respond-async", preferences.WAIT_SECONDS), ("respond-async, wait=2", 2)]
)
def test_an_answer_that_cannot_come_at_once_is_waited_for(prefer, seconds):
    request = asked(b"prefer", prefer)
    assert preferences.wait_seconds(request, 10, can_be_async=False) == seconds


@pytest.mark.regression("gateway 113")
@pytest.mark.parametrize(
    ("prefer", "at_once", "waited"),
    [
        ((), None, None),
        (("return=minimal",), None, None),
        (("wait=soon",), None, None),
        (("wait=2",), "wait", "wait"),
        (("respond-async",), "respond-async", None),
        (("Respond-Async", 'WAIT="2"; strict'), "respond-async, wait", "wait"),
    ],
)
def test_an_answer_names_the_preferences_that_it_was_asked_to_honour_and_did(prefer, at_once, waited):
    request = Request({"type": "http", "headers": [(b"prefer", one.encode()) for one in prefer]})
    for is_stored, applied in ((False, at_once), (True, waited)):
        expected = {} if applied is None else {"Preference-Applied": applied}
        assert preferences.applied(request, is_stored=is_stored) == expected


@pytest.mark.regression("gateway 112")
@pytest.mark.parametrize(
    ("accept", "is_preferred"),
    [
        ((), False),
        (("*/*",), False),
        (("application/*",), False),
        (("application/x-ndjson",), True),
        (("Application/X-NDJSON; charset=utf-8",), True),
        (("application/x-ndjson;q=0",), False),
        (("application/x-ndjson; Q=0.000", "*/*"), False),
        (("application/x-ndjson, */*",), True),
        (("application/x-ndjson", "application/json"), True),
        (("application/json, application/x-ndjson;q=0.5",), False),
        (("application/json;q=0.4, application/x-ndjson;q=0.5, */*",), True),
        (("application/*, application/x-ndjson;q=0.5",), False),
        (("application/x-ndjson;q=much",), True),
        (("application/x-ndjsonlines",), False),
    ],
)
def test_a_media_type_is_accepted_with_its_quality(accept, is_preferred):
    headers = Headers(raw=[(b"accept", one.encode()) for one in accept])
    assert preferences.prefers(headers, NDJSON) is is_preferred


def asked(name, value):
    return Request({"type": "http", "headers": [] if value is None else [(name, value.encode())]})


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (None, None),
        ("k-1", "k-1"),
        ('"k-1"', "k-1"),
        (' "k-1" ', "k-1"),
        ('"k-1', '"k-1'),
        ("k" * 255, "k" * 255),
    ],
)
def test_a_key_of_a_request_is_the_same_with_and_without_its_quotes(written, key):
    assert preferences.idempotency_key(asked(b"idempotency-key", written)) == key


@pytest.mark.parametrize("written", ["", '""', "k" * 256])
def test_a_key_has_a_length(written):
    with pytest.raises(ProblemError, match="1 to 255 characters") as refused:
        preferences.idempotency_key(asked(b"idempotency-key", written))
    assert refused.value.word == "bad-parameter"


@pytest.mark.parametrize(
    ("written", "version"),
    [(None, None), ('"0"', 0), (' "41" ', 41), ('W/"41"', 41), ('"5.n300.1.parked7"', 5)],
)
def test_a_version_is_expected_as_an_entity_tag(written, version):
    assert preferences.expected_version(asked(b"if-match", written)) == version


@pytest.mark.parametrize("written", ["41", "*", '"41", "42"', '"-1"', '"x"'])
def test_what_is_no_tag_of_a_version_is_refused(written):
    with pytest.raises(ProblemError, match="one entity tag"):
        preferences.expected_version(asked(b"if-match", written))
