"""What `frameledger demo` prints last: how to inspect its conversation afterwards."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rich.console import Console

from frameledger_services.cli.demo import closing
from frameledger_services.cli.demo.plan import DemoPlan
from frameledger_services.cli.up.render import page_of
from frameledger_services.demo.playing import Played
from frameledger_services.settings import GATEWAY_PORT, PREFIX, Settings

if TYPE_CHECKING:
    from frameledger_services.demo.servers import Servers


def print_next_steps(console: Console, plan: DemoPlan, used: Servers, played: Played) -> None:
    """Print the commands, the address and the SQL that show the conversation of the demo."""
    from frameledger_services.embedded.record import read_record

    program = _program()
    console.print()
    settings = plan.settings
    if used.ours and settings.database_url is None:
        console.print(
            f"Everything was stopped; the data is kept in {settings.data_dir}. To inspect it:",
        )
        if settings.data_dir != Settings().data_dir and not os.environ.get(f"{PREFIX}DATA_DIR"):
            console.print(f"  export {PREFIX}DATA_DIR={shlex.quote(str(settings.data_dir))}")
        console.print(f"  {program} up --detach", style="bold")
        page: str | None = f"http://127.0.0.1:{GATEWAY_PORT}/"
        unless = ", unless `up` prints another address"
    else:
        console.print("To inspect it:")
        record = read_record(settings.directory)
        page, unless = None if record is None else page_of(record), ""
    if page is not None:
        address = f"{page}c/{quote(plan.context_id, safe='')}"
        console.print(f"  {address} in a browser{unless}", soft_wrap=True)
    console.print(f"  {program} sql", style="bold")
    for sql in closing.to_try(plan.context_id, played):
        closing.print_sql(console, sql)


def _program() -> str:
    """Returns this command line as the user would type it."""
    path = Path(sys.argv[0])
    return str(path) if path.name == "frameledger" and not path.is_absolute() else "frameledger"
