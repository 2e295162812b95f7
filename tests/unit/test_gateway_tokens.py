"""Tokens of the gateway: their file, and the commands that change it."""

import hashlib
import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.tokens import (
    TokenRefusedError,
    TokensFileError,
    create,
    id_in,
    load,
    revoke,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.json"


def made(path, name="ci", scopes=("read",), **more):
    return create(path, name, scopes, now=NOON, **more)


def test_a_token_is_given_once_and_the_file_has_its_hash_alone(path):
    token, text = made(path, scopes=("append", "read"), prefix="acme/", redact=True)
    assert id_in(text) == token.id
    assert text.split("_", 2)[2] not in path.read_text()
    assert len(text) == len("fl_") + 10 + 1 + 43
    [kept] = load(path)
    assert kept == token
    assert kept.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert kept.belongs_to(text)
    assert not kept.belongs_to(text[:-1] + ("a" if text[-1] != "a" else "b"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_tokens_differ_and_are_kept_in_their_order(path):
    (one, first), (other, second) = made(path, "one"), made(path, "other")
    assert (one.id, first) != (other.id, second)
    assert [token.name for token in load(path)] == ["one", "other"]
    assert revoke(path, "one") == one
    assert revoke(path, other.id) == other
    assert load(path) == ()


def test_a_name_is_taken_once_and_revoked_once(path):
    made(path, "ci")
    before = path.read_bytes()
    with pytest.raises(TokenRefusedError, match="ci exists already"):
        made(path, "ci")
    with pytest.raises(TokenRefusedError, match="no token cd"):
        revoke(path, "cd")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "wrong",
    [{"name": "a b"}, {"name": ""}, {"scopes": ()}, {"scopes": ("write",)}, {"prefix": "a\x00"}],
    ids=str,
)
def test_what_is_no_token_is_not_made(path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        made(path, **wrong)
    assert not path.exists()


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (lambda file: "{", "Invalid JSON"),
        (lambda file: [], "an object"),
        (lambda file: {"tokens": [file["tokens"][0] | {"redcat": True}]}, "redcat"),
        (lambda file: {"tokens": [file["tokens"][0] | {"scopes": ["write"]}]}, "scopes"),
        (lambda file: {"tokens": [file["tokens"][0] | {"expires_at": "2027-01-01T00:00:00"}]}, "expires_at"),
        (lambda file: {"tokens": file["tokens"] * 2}, "several tokens with the id"),
        (lambda file: {"tokens": [file["tokens"][0], file["tokens"][0] | {"id": "0" * 10}]}, "name ci"),
    ],
    ids=range(7),
)
def test_a_file_that_is_wrong_is_named_without_its_hashes(path, spoilt, why):
    token, _ = made(path)
    changed = spoilt(json.loads(path.read_text()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(TokensFileError, match=why) as raised:
        load(path)
    assert str(path) in str(raised.value)
    assert token.sha256 not in str(raised.value)


def test_a_file_that_is_not_there_is_none(path):
    with pytest.raises(TokensFileError, match="No such file"):
        load(path)


def test_a_process_that_dies_while_it_writes_leaves_the_old_file(path, monkeypatch):
    made(path, "one")

    def die(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            made(path, "two")
    assert [token.name for token in load(path)] == ["one"]
    made(path, "three")
    assert [token.name for token in load(path)] == ["one", "three"]


def test_commands_at_once_lose_no_token(path):
    names = [f"n{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: made(path, name), names))
    assert sorted(token.name for token in load(path)) == names


def test_a_running_gateway_sees_what_changes(path):
    _, one = made(path, "one")
    live = LiveTokens(path, required=True)
    assert live.of_text(one).name == "one"
    token, two = made(path, "two")
    assert live.of_text(two) == live.of_id(token.id) == token
    revoke(path, "one")
    assert live.of_text(one) is None
    assert live.of_text(two) == token


def test_a_gateway_looks_at_the_file_once_in_a_while_and_a_change_takes_as_long(path, monkeypatch):
    made(path, "one")
    live = LiveTokens(path, required=True)
    looks = []
    look = os.stat

    def counted(*arguments, **options):
        looks.append(arguments)
        return look(*arguments, **options)

    with monkeypatch.context() as counting:
        counting.setattr(os, "stat", counted)
        counting.setattr("time.monotonic", lambda: 1.0)
        for _ in range(3):
            live.of_id("0" * 10)
        assert looks == [(path,)]
    began = time.monotonic()
    revoke(path, "one")
    assert time.monotonic() - began >= tokens.CHECK_SECONDS


@pytest.mark.regression("gateway 47")
def test_a_change_of_the_file_is_later_than_the_one_before_whatever_the_clock_says(path):
    """A clock goes on in ticks of milliseconds, and may be set back; inodes are used again, and sizes are the same."""
    made(path, "ci")
    later = path.stat().st_mtime_ns + 10**12
    os.utime(path, ns=(later, later))
    revoke(path, "ci")
    made(path, "ci")
    assert path.stat().st_mtime_ns > later


@pytest.mark.regression("gateway 43")
def test_a_file_that_could_not_be_read_for_a_moment_is_read_again_though_nobody_wrote_it(
    path, monkeypatch, caplog
):
    """So it is while the process has no file descriptor left, or before somebody gives the file to its user."""
    token, text = made(path, "one")
    live = LiveTokens(path, required=True)

    def refuse(_):
        raise TokensFileError("Too many open files.")

    with monkeypatch.context() as away, caplog.at_level("WARNING", "frameledger"):
        away.setattr(tokens, "load", refuse)
        assert [live.of_text(text), live.of_text(text)] == [None, None]
        assert len(caplog.records) == 1
    assert live.of_text(text) == token


@pytest.mark.parametrize("text", ["", "fl_", "Bearer", "fl_0000000000_" + "a" * 43, "fl_ü", "\ud800"])
def test_what_is_no_token_is_nobodys(path, text):
    made(path)
    assert LiveTokens(path, required=True).of_text(text) is None


def test_the_secret_of_one_token_is_not_good_for_another(path):
    (one, text), (other, _) = made(path, "one"), made(path, "other")
    live = LiveTokens(path, required=True)
    assert live.of_text(text) == one
    assert live.of_text(text.replace(one.id, other.id)) is None


def test_a_token_is_good_until_it_expires(path):
    moment = [NOON]
    token, text = made(path, expires_at=NOON + timedelta(days=1))
    live = LiveTokens(path, required=True, now=lambda: moment[0])
    assert live.of_text(text) == token
    moment[0] += timedelta(days=1)
    assert live.of_text(text) is None
    assert live.of_id(token.id) is None


def test_from_the_first_token_on_one_is_needed_also_when_the_file_is_deleted(path):
    live = LiveTokens(path, required=False, check_seconds=0)
    assert not live.are_required()
    _, text = made(path)
    assert live.are_required()
    assert live.of_text(text) is not None
    path.unlink()
    assert live.are_required()
    assert live.of_text(text) is None


def test_while_the_file_is_wrong_no_token_is_good_and_the_log_says_why(path, caplog):
    _, text = made(path)
    live = LiveTokens(path, required=True, check_seconds=0)
    assert live.of_text(text) is not None
    before = path.read_text()
    path.write_text("{")
    with caplog.at_level("WARNING", "frameledger"):
        assert live.of_text(text) is None
        assert live.of_text(text) is None
    assert [record.frameledger["event"] for record in caplog.records] == ["gateway.tokens_unreadable"]
    assert str(path) in caplog.text
    path.write_text(before)
    assert live.of_text(text) is not None


def test_the_commands_make_list_and_revoke_tokens(path, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_GATEWAY_TOKENS_FILE", str(path))

    def run(*arguments):
        return CliRunner().invoke(application(), ["token", *arguments])

    assert f"There are no tokens in {path}" in run("list").output.replace("\n", "")
    new = run("new", "--name", "ci", "--scope", "append, read", "--prefix", "acme/", "--days", "90")
    [text] = new.stdout.splitlines()
    assert "Created ci with read, append on acme/*" in new.stderr
    [token] = load(path)
    assert token.belongs_to(text)
    assert token.expires_at - token.created_at == timedelta(days=90)

    secret = json.loads(run("new", "--name", "audit", "--redact", "--json").stdout)["token"]
    listed = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert [(one["name"], one["scopes"], one["redact"]) for one in listed] == [
        ("ci", ["read", "append"], False),
        ("audit", ["read"], True),
    ]
    printed = run("list").stdout
    assert "audit" in printed
    assert not any(hidden in printed + json.dumps(listed) for hidden in (secret, text, token.sha256))

    assert "Revoked audit" in run("revoke", "audit").stdout
    assert [one.name for one in load(path)] == ["ci"]
    for wrong in (("revoke", "audit"), ("new", "--name", "ci"), ("new", "--name", "x", "--scope", "write")):
        assert run(*wrong).exit_code == 1
    assert [one.name for one in load(path)] == ["ci"]


def test_without_a_setting_the_tokens_are_in_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATA_DIR", str(tmp_path / "data"))
    assert CliRunner().invoke(application(), ["token", "new", "--name", "ci"]).exit_code == 0
    assert [one.name for one in load(tmp_path / "data" / "gateway-tokens.json")] == ["ci"]
