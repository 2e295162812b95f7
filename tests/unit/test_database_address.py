"""The database address of every connection has timeouts, unless it sets them itself."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from frameledger_services import database
from frameledger_services.settings import Settings


def parts(address, **parameters):
    settings = Settings(database_url=SecretStr(address), work_lease_secs=10.0)
    return conninfo_to_dict(database.address(settings, "test", **parameters))


@pytest.mark.regression("trial C3", "fault 10")
def test_every_connection_is_bounded():
    assert parts("postgresql://db/x").keys() >= {
        *("connect_timeout", "tcp_user_timeout"),
        *("keepalives_idle", "keepalives_interval", "keepalives_count"),
    }


@pytest.mark.regression("trial C3")
def test_what_the_address_says_itself_wins():
    found = parts(
        "postgresql://one,two/x?connect_timeout=30&keepalives_idle=60&target_session_attrs=any",
        keepalives_idle=1,
    )
    assert (found["connect_timeout"], found["keepalives_idle"]) == ("30", "60")
    assert found["target_session_attrs"] == "any"
    assert found["application_name"] == "test"


@pytest.mark.regression("fault 17d")
@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://db/x", None),
        ("postgresql://one,two/x", "read-write"),
        ("postgresql://one:1,one:2/x", "read-write"),
        ("hostaddr=10.0.0.1,10.0.0.2 dbname=x", "read-write"),
        ("postgresql://one,two/x?target_session_attrs=standby", "standby"),
    ],
)
def test_several_hosts_mean_the_one_that_can_be_written_to(address, expected):
    assert parts(address).get("target_session_attrs") == expected


@pytest.mark.regression("trial C3")
@pytest.mark.parametrize("hosts", [2, 3])
@pytest.mark.parametrize("lease", [8.0, 10.0, 60.0])
def test_all_hosts_but_the_last_are_given_up_within_a_lease(lease, hosts):
    assert database.connect_seconds(lease, hosts) * hosts < lease


def test_a_short_lease_is_no_reason_for_less_than_libpq_takes():
    assert database.connect_seconds(0.1, 2) == database.MIN_CONNECT_SECONDS
    assert database.connect_seconds(5.0, 2) == 2
    assert database.connect_seconds(3_600.0, 1) == database.MAX_CONNECT_SECONDS
