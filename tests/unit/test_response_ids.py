"""Response ids contain their conversation and version; no other text is an id."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger_services.gateway.openai_responses import response_ids
from frameledger_services.gateway.openai_responses.response_ids import ResponseId


def spelt(said):
    return "resp_" + urlsafe_b64encode(said).decode().rstrip("=")


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60),
    st.integers(1, 2**63 - 1),
)
def test_an_id_says_where_its_response_was_asked_for(context_id, version):
    made = ResponseId(context_id, version)
    assert response_ids.parse(str(made)) == made
    assert str(made).removeprefix("resp_").replace("-", "").replace("_", "").isalnum()


def test_the_longest_id_is_one():
    made = ResponseId("ä" * 127 + "a", 2**63 - 1)
    assert response_ids.parse(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "resp_",
        "1",
        "msg_MTph",
        "resp_*",
        "resp_ä",
        f"{ResponseId('a', 1)}=",
        f"{ResponseId('a', 1)}\n",
        spelt(b"a"),
        spelt(b":a"),
        spelt(b"0:a"),
        spelt(b"01:a"),
        spelt("\u0661:a".encode()),
        spelt(b"-1:a"),
        spelt(b"1:"),
        spelt(b"1:\xff"),
        spelt(b"1:\x00"),
        spelt(b"9223372036854775808:a"),
        spelt(b"1:" + b"a" * 256),
        "resp_" + "a" * 100_000,
    ],
    ids=lambda one: ascii(one[:20]),
)
def test_what_is_made_up_is_no_id(text):
    assert response_ids.parse(text) is None
