"""The page in a real browser: one browser, one database and one gateway for all tests of a file."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext
from pydantic import SecretStr
from tests.support import browsers, gateway, page_conversations, webpage
from tests.support.databases import made
from tests.support.servers import collect_garbage  # noqa: F401  # a fixture
from tests.support.streaming import NO_KAFKA
from tests.support.webpage import Webpage

from frameledger_services.embedded import ports
from frameledger_services.settings import Settings


@pytest.fixture(scope="module")
def settings(database_server, migrated_template) -> Iterator[Settings]:
    """The settings of a gateway with a database for this file, which publishes nothing."""
    with made(database_server, template=migrated_template) as (_, address):
        yield Settings(database_url=SecretStr(address), kafka_bootstrap_servers=NO_KAFKA)


@pytest.fixture(scope="module")
def filled(settings):
    """The same settings, with a database that has every conversation of `page_conversations`."""
    page_conversations.fill(settings.database_url.get_secret_value())
    return settings


# After `filled`: once a browser runs, `asyncio.run` does not work in this thread.
@pytest.fixture(scope="module")
def browser(filled, tmp_path_factory, worker_id) -> Iterator[Browser]:
    with browsers.running_or_skipped(tmp_path_factory, worker_id) as running:
        yield running


@pytest.fixture(scope="module")
def context(browser) -> Iterator[BrowserContext]:
    """The browser's session, without a cookie."""
    with browser.new_context(reduced_motion="reduce", timezone_id="UTC", locale="en-GB") as opened:
        yield opened


@pytest.fixture(scope="module")
def origin(filled) -> Iterator[str]:
    with gateway.running(filled, is_heard=False, gateway_port=str(ports.choose(0))) as running:
        yield running.address


@pytest.fixture
def web(context, origin) -> Iterator[Webpage]:
    """A page for this test."""
    with webpage.opened(context, origin) as page:
        yield page
