"""A database user who lacks a permission: every service and every command says in a sentence what was refused, to whom,
and which role to grant."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support import gateway
from tests.support.commands import command, environment  # noqa: F401  # a fixture
from tests.support.forked_command import Command
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long

from frameledger_services.embedded import ports
from frameledger_services.telemetry.health import REFUSED

RUN = b'{"type":"LLMRunFrame"}'

pytestmark = pytest.mark.regression("journey 73")

SERVICES = [
    ("frameledger_projector", "projector"),
    ("frameledger_worker", "timekeeper"),
    ("frameledger_worker", "inference", "--provider", "scripted"),
    ("frameledger_worker", "functions", "--module", "frameledger_services.demo.tools"),
]


@pytest.fixture
def user(database_server: str) -> Iterator[str]:
    """A user of the server who may log in, and has no role. Its name needs quotes, and is its password."""
    name = f"no-role-{uuid4().hex}"
    with psycopg.connect(database_server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(name))
        )
        yield name
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def as_user(address: str, user: str) -> str:
    return make_conninfo(address, user=user, password=user)


@pytest.mark.parametrize(
    "words", [SERVICES[0], *map(long, SERVICES[1:])], ids=[words[1] for words in SERVICES]
)
def test_a_service_names_what_was_refused_the_user_and_the_role(pipeline, user, words):
    role, *service = words
    settings = pipeline.settings.model_copy(
        update={"database_url": SecretStr(as_user(pipeline.address, user))}
    )
    with Command(["run", *service], environment(settings)) as running, running.errors:
        assert running.ended() == 1
        said = running.errors.read().decode()
    last = said.splitlines()[-1]
    assert "Traceback" not in said
    assert last.startswith(f"The database user '{user}' lacks a permission: permission denied for table ")
    assert f'GRANT {role} TO "{user}"' in last


@pytest.mark.long
def test_a_service_says_it_too_when_a_grant_is_revoked_while_it_runs(pipeline, user):
    settings = pipeline.settings.model_copy(
        update={"database_url": SecretStr(as_user(pipeline.address, user))}
    )
    with psycopg.connect(pipeline.address, autocommit=True) as superuser:
        superuser.execute(sql.SQL("GRANT frameledger_projector TO {}").format(sql.Identifier(user)))
        with Command(["run", "projector"], environment(settings)) as running, running.errors:
            pipeline.publish([Raw(b"ctx", RUN)])
            pipeline.until("SELECT count(*) = 1 FROM frames")
            superuser.execute("REVOKE INSERT ON frames FROM frameledger_projector")
            pipeline.publish([Raw(b"ctx", RUN)])
            assert running.ended() == 1
            said = running.errors.read().decode()
    assert "Traceback" not in said
    assert f"user '{user}' lacks a permission: permission denied for table frames." in said.splitlines()[-1]


@pytest.mark.long
@pytest.mark.regression("gateway 81")
def test_a_gateway_logs_it_and_goes_on_as_during_an_outage(pipeline, user):
    with gateway.running(
        pipeline.settings, gateway_port=str(ports.choose(0)), database_url=as_user(pipeline.address, user)
    ) as running:
        # The gateway reads only on request.
        assert httpx.get(f"{running.address}/v1/contexts/ctx", timeout=ON_SERVERS).status_code == 503
        event = next(event for event in running.events() if event["event"] == "gateway.database_away")
        assert f'GRANT frameledger_reader TO "{user}"' in event["reason"]
        ready = httpx.get(f"{running.address}/readyz", timeout=ON_SERVERS).json()
        assert ready["checks"]["database"] == REFUSED
        assert httpx.get(f"{running.address}/livez", timeout=ON_SERVERS).status_code == 200


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["list"], "frameledger_reader"),
        (["verify", "--all"], "frameledger_reader"),
        (["doctor"], "frameledger_reader"),
        (["heads"], "frameledger_reader"),
        (["rebuild"], "frameledger_operator"),
        (["unpark", "ctx", "--why", "why"], "frameledger_operator"),
        (["recover"], "frameledger_operator"),
        (["dlq", "retry", "0:0"], "frameledger_projector"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_command_names_them_too(command, pipeline, user, words, role):  # noqa: F811
    settings = pipeline.settings.model_copy(
        update={"database_url": SecretStr(as_user(pipeline.address, user))}
    )
    done = command(settings, *words)
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert f"user '{user}' lacks a permission: permission denied for table " in said
    assert f'GRANT {role} TO "{user}"' in said


def test_migrate_as_a_user_who_may_not_create_names_the_owner(command, empty_database, user):  # noqa: F811
    done = command(as_user(empty_database, user), "migrate")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"The database user '{user}' lacks a permission: permission denied for schema public.",
        "Set FRAMELEDGER_DATABASE_URL to the address of the user that owns the database and its tables.",
        "Nothing was changed.",
    ]
