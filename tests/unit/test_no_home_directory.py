"""A user without a home directory, such as an unknown user id in a container."""

import os

import pytest
from tests.support import no_home_directory
from tests.support.processes import Process

pytestmark = [
    pytest.mark.regression("journey 114"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


def test_who_configured_nothing_is_told_so(tmp_path):
    with Process(no_home_directory.for_a_database, tmp_path) as asking:
        assert asking.hear().startswith("No database is configured: run `frameledger up` first")


def test_the_jars_of_the_broker_need_a_folder():
    with Process(no_home_directory.for_the_cache) as asking:
        assert "set FRAMELEDGER_CACHE_DIR to a folder" in asking.hear()
