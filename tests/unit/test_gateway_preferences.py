"""What a request says about itself in headers."""

import pytest
from starlette.requests import Request

from frameledger_services.gateway import preferences


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
