"""`frameledger sql` passes the database address to psql without showing its secrets."""

import pytest
import typer
from psycopg.conninfo import conninfo_to_dict

from frameledger_services.cli import sql


def test_everything_that_libpq_has_a_variable_for_goes_through_it():
    address = "postgresql://me:s%27ecret@db.example:5433/talks?sslmode=require&keepalives_idle=5"
    variables, arguments = sql._environment(conninfo_to_dict(address))
    assert variables == {
        "PGUSER": "me",
        "PGPASSWORD": "s'ecret",
        "PGHOST": "db.example",
        "PGPORT": "5433",
        "PGDATABASE": "talks",
        "PGSSLMODE": "require",
    }
    assert arguments == ["keepalives_idle='5'"]


def test_an_argument_of_several_words_is_a_statement():
    for said in ("SELECT 1", r"\dt", r"\d frames"):
        assert sql._arguments([said]) == ["-c", said]
        assert sql._arguments([said, "-x"]) == ["-c", said, "-x"]
        assert sql._arguments(["--csv", "-x", said]) == ["--csv", "-x", "-c", said]
    for psqls in (
        ["-c", "SELECT 1"],
        ["-tAc", "SELECT 1"],
        ["--command", "SELECT 1"],
        ["four"],
        ["-c SELECT 1"],
        ["host=db dbname=four"],
        ["-v", "name=two words", "-f", "my file.sql"],
        [],
    ):
        assert sql._arguments(psqls) == psqls


def test_a_secret_that_has_no_variable_is_refused_and_not_shown(capsys):
    with pytest.raises(typer.Exit):
        sql._environment({"host": "db", "sslpassword": "secret"})
    said = capsys.readouterr().err
    assert "sslpassword" in said
    assert "secret" not in said.replace("sslpassword", "")


def test_without_any_psql_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(sql, "_packaged", lambda: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(typer.Exit):
        sql._psql(is_embedded=True)
    assert "Install the PostgreSQL client" in capsys.readouterr().err


def test_the_embedded_database_gets_the_psql_of_its_version_and_any_other_the_users_own(monkeypatch):
    monkeypatch.setattr(sql, "_packaged", lambda: "packaged")
    monkeypatch.setattr("shutil.which", lambda _: "own")
    assert sql._psql(is_embedded=True) == "packaged"
    assert sql._psql(is_embedded=False) == "own"
