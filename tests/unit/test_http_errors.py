"""Error responses of HTTP APIs, classified by what the caller must do."""

import errno
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from frameledger_services.providers import errors, http_errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(status, errors.RefusedContextError) for status in (400, 413, 422, 418)],
        *[(status, errors.ProviderRefusedError) for status in (401, 402, 403, 404)],
        *[(status, errors.ProviderUnavailableError) for status in (408, 409, 429, 500, 502, 503, 504, 529)],
    ],
)
def test_a_status_says_what_must_be_done(status, kind):
    assert type(http_errors.of_status("p", status, message="w")) is kind


def test_a_used_up_quota_is_a_refusal_of_us_with_any_status():
    error = http_errors.of_status("p", 429, message="w", kinds=("insufficient_quota", None))
    assert type(error) is errors.ProviderRefusedError
    assert "429" in error.message


def test_a_status_outranks_the_words_beside_it():
    error = http_errors.of_status("p", 404, message="w", kinds=(None, "invalid_request_error"))
    assert type(error) is errors.ProviderRefusedError


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        (("overloaded_error",), errors.ProviderUnavailableError),
        (("rate_limit_error",), errors.ProviderUnavailableError),
        (("invalid_request_error",), errors.RefusedContextError),
        ((None, "authentication_error"), errors.ProviderRefusedError),
        ((400, None), errors.RefusedContextError),
        ((None, None), errors.ProviderUnavailableError),
        (("a_new_one",), errors.ProviderUnavailableError),
    ],
)
def test_in_a_stream_the_words_say_it(kinds, kind):
    assert type(http_errors.in_the_stream("p", message="w", kinds=kinds)) is kind


@pytest.mark.regression("worker 162")
def test_a_call_of_its_model_that_groq_cannot_read_is_asked_for_again():
    kinds = ("tool_use_failed", "invalid_request_error")
    for error in (
        http_errors.of_status("p", 400, message="w", kinds=kinds),
        http_errors.in_the_stream("p", message="w", kinds=kinds),
    ):
        assert type(error) is errors.ProviderUnavailableError
        assert "w" in error.message


@pytest.mark.regression("worker 115")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("400", errors.RefusedContextError),
        ("401", errors.ProviderRefusedError),
        ("429", errors.ProviderUnavailableError),
        ("200", errors.ProviderUnavailableError),
        ("4000", errors.ProviderUnavailableError),
    ],
)
def test_a_code_may_be_a_status_as_text(code, kind):
    error = http_errors.in_the_stream("p", message="w", kinds=(code, None))
    assert type(error) is kind
    assert (error.code == "rate_limited") == (code == "429")


@pytest.mark.parametrize(
    ("headers", "secs"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "tomorrow"}, None),
        pytest.param(
            {"retry-after": "Fri, 20 Nov 99999999999 00:00:00 GMT"},
            None,
            marks=pytest.mark.regression("worker 58"),
        ),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_in_seconds(headers, secs):
    assert http_errors.retry_after(headers) == secs


def test_a_date_that_is_over_is_no_time_to_wait():
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    assert http_errors.retry_after({"retry-after": past}) == 0


def test_no_secret_and_no_endless_sentence_is_passed_on():
    error = http_errors.of_status("p", 400, message="key-1 " + "x" * 5000, secret="key-1")
    assert "key-1" not in error.message
    assert len(error.message) < 600


def test_what_is_said_about_who_we_are_is_not_passed_on():
    assert "org-123" not in http_errors.of_status("p", 401, message="no such key in org-123").message


def untrusted():
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.regression("journey 110")
@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.7', 9)"),
            "Connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (untrusted(), "the certificate is not trusted, self-signed certificate"),
        (OSError("All connection attempts failed"), ""),
        (ValueError("of llm.internal"), ""),
    ],
)
def test_a_connection_that_failed_is_told_with_its_cause_and_without_addresses(cause, why):
    error = RuntimeError("Connection error.")
    error.__cause__ = OSError("All connection attempts failed")
    error.__cause__.__context__ = cause
    assert http_errors.why_not_connected(error) == why
