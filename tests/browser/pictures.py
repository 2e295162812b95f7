"""The page as pictures for its readers: `make picture` writes `infra/docs/page-*.png`.

They show recorded histories at the times at which these were produced, so they differ only when the page does, or the
browser's fonts.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect
from tests import in_memory
from tests.support import browsers, gateway, page_conversations, webpage
from tests.support.databases import made
from tests.support.streaming import NO_KAFKA
from tests.support.webpage import Webpage

from frameledger_services.embedded import ports, postgres
from frameledger_services.settings import Settings
from frameledger_services.store import migration

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "docs"
SIZE = {"width": 1200, "height": 720}


def listed(web: Webpage) -> None:
    web.list(q="the", model="meadow-2")


def interrupted(web: Webpage) -> None:
    web.open("a-day-at-the-desk", at=58)


def explained(web: Webpage) -> None:
    interrupted(web)
    web.page.locator("li.fresh").get_by_role("link", name="why").click()
    expect(web.page.get_by_role("heading", name="Why this message is there")).to_be_visible()


PICTURES = {
    "page-list": ("light", listed),
    "page-conversation": ("light", interrupted),
    "page-why": ("dark", explained),
}
"""By file name: the colours, and the address that is opened."""


def take(web: Webpage, folder: Path) -> None:
    """Write all pictures into a folder."""
    for name, (colours, show) in PICTURES.items():
        web.page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        show(web)
        web.settle()
        expect(web.page.get_by_role("status").first).not_to_contain_text("connecting")
        expect(web.page.get_by_role("banner").get_by_text("What needs a person")).to_contain_text("2")
        # Without animations, so that a picture is always the same.
        web.page.screenshot(path=folder / f"{name}.png", animations="disabled")


def main(folder: Path) -> None:
    """Start a PostgreSQL, a gateway and a browser, and take the pictures."""
    in_memory.use()
    with (
        tempfile.TemporaryDirectory() as data,
        postgres.running(Path(data)) as server,
        made(server.dsn) as (_, address),
    ):
        migration.migrate(address)
        page_conversations.fill(address)
        settings = Settings(database_url=address, kafka_bootstrap_servers=NO_KAFKA)
        with (
            gateway.running(settings, is_heard=False, gateway_port=str(ports.choose(0))) as running,
            browsers.running(Path(data)) as browser,
            browser.new_context(viewport=SIZE, timezone_id="UTC", locale="en-GB") as context,
            webpage.opened(context, running.address) as web,
        ):
            take(web, folder)


if __name__ == "__main__":
    try:
        main(FOLDER)
    except browsers.NoBrowserError as error:
        sys.exit(f"No picture can be taken: {error}.")
