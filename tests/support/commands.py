"""Runs the command line in this process, with the servers of the test."""

import pytest
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.settings import Settings


def environment(settings: Settings) -> dict[str, str]:
    """Returns the variables by which a command finds the broker, the topics and the database of these settings."""
    assert settings.kafka_bootstrap_servers is not None
    return {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "FRAMELEDGER_TOPIC_PREFIX": settings.topic_prefix,
        "FRAMELEDGER_TOPIC_PARTITIONS": str(settings.topic_partitions),
        "FRAMELEDGER_DATABASE_URL": settings.database_url.get_secret_value(),
    }


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs a command on a database, given its address, or where settings lead. Options are those of `invoke`."""

    def run(where, *words, **options):
        variables = {"FRAMELEDGER_DATABASE_URL": where} if isinstance(where, str) else environment(where)
        for name, value in (variables | {"FRAMELEDGER_DATA_DIR": str(tmp_path)}).items():
            monkeypatch.setenv(name, value)
        return CliRunner().invoke(application(), [str(word) for word in words], **options)

    return run
