"""The pages: each stands in the menu, links lead to pages and headings that are there, and lists come from the code."""

import re
import runpy
from pathlib import Path

import pytest
from tests.unit.test_repository import ROOT, texts

from frameledger_services.cli import COMMANDS
from frameledger_services.log_events import EVENTS
from frameledger_services.settings import Settings
from frameledger_services.store.tables import metadata

MENU = "infra/mkdocs.yml"
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def pages() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".md")}


def headings(page: str) -> set[str]:
    """The anchors of a page, as GitHub and MkDocs both make them."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in re.findall(r"^#+ (.*)$", prose, re.M))
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken(found: dict[str, str], root: Path = ROOT) -> list[str]:
    """Each link to a file that is not there, or to a heading that its page does not have."""
    wrong = []
    for name, text in found.items():
        for target, anchor in LINK.findall(text):
            path = (root / name).parent.joinpath(target).resolve() if target else root / name
            page = found.get(path.relative_to(root).as_posix(), "") if path.is_relative_to(root) else ""
            if not path.is_file() or (anchor and anchor not in headings(page)):
                wrong.append(f"{name}: {target}#{anchor}")
    return wrong


def missing_from_menu(listed: list[str], menu: str) -> list[str]:
    """Pages that do not stand in the menu once, and entries that are no pages."""
    entries = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", menu, re.M)
    return sorted({*listed} ^ {*entries}) + [entry for entry in {*entries} if entries.count(entry) > 1]


def test_every_page_stands_in_the_menu_once():
    assert missing_from_menu(sorted(pages()), texts()[MENU]) == []


def test_every_link_leads_to_a_page_and_a_heading_that_are_there():
    assert broken(pages()) == []


def test_what_is_wrong_with_pages_is_found(tmp_path):
    menu = "nav:\n  - a.md\n  - A: a.md\n  - c.md\n"
    assert missing_from_menu(["a.md", "b.md"], menu) == ["b.md", "c.md", "a.md"]
    found = {
        "a.md": "# One thing: `two`\n[b](room/b.md) [c](gone.md) [d](#one-thing-two) [e](#three)",
        "room/b.md": "# B\n[a](../a.md#b) [b](../a.md#one-thing-two) [c](../../outside.md)",
    }
    (tmp_path / "room").mkdir()
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    assert broken(found, tmp_path) == [
        "a.md: gone.md#",
        "a.md: #three",
        "room/b.md: ../a.md#b",
        "room/b.md: ../../outside.md#",
    ]


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in pages():
            continue
        reached.add(name)
        targets = (target for target, _ in LINK.findall(pages()[name]) if target)
        waiting += [
            path.relative_to(ROOT).as_posix()
            for path in ((ROOT / name).parent.joinpath(target).resolve() for target in targets)
            if path.is_relative_to(ROOT)
        ]
    assert sorted(set(pages()) - reached) == []


@pytest.mark.parametrize(
    ("page", "listed"),
    [
        ("settings.md", [f"`FRAMELEDGER_{name.upper()}`" for name in Settings.model_fields]),
        ("commands.md", [f"`frameledger {name} " for name in COMMANDS]),
        ("logs.md", [f"`{name}`" for name in EVENTS]),
        (
            "sql.md",
            [*(f"### {name}\n" for name in metadata.tables), "`transcript`", "`context_at(text, bigint)`"],
        ),
    ],
)
def test_a_list_on_the_site_has_everything_that_the_code_has(page, listed):
    reference = runpy.run_path(str(ROOT / "infra" / "docs" / "reference.py"))
    filled = reference["filled"](texts()[f"infra/docs/{page}"])
    assert "<!--" not in filled
    assert [one for one in listed if one not in filled] == []
