"""Writes the table in `commands.md` from `GROUPS`, the list of all commands in `frameledger_services.cli`.

`.venv/bin/python infra/docs/commands.py` writes it; a test fails if it is outdated.
"""

import re
from pathlib import Path

from frameledger_services.cli import GROUPS

PAGE = Path(__file__).with_name("commands.md")
TABLE = re.compile(r"(?<=\n)\| command \|.*?\n(?!\|)", re.S)


def page() -> str:
    """The text of the page, with the current table."""
    rows = ["| command | what it does |", "| --- | --- |"]
    for title, commands in GROUPS.items():
        rows.append(f"| **{title}** | |")
        rows += (f"| `{name}` | {_cell(one.line)} |" for name, one in commands.items())
    table = "".join(f"{row}\n" for row in rows)
    return TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
