"""The documentation: each page is in the menu, links lead to existing pages and headings, and lists match the code."""

import json
import re
import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest
from sqlalchemy import CheckConstraint
from tests.support.pages import FENCE
from tests.unit.test_repository import ROOT, texts

from frameledger.evolve.limits import NAMES
from frameledger.frames import FRAME_TYPES, parse_frame
from frameledger_services.cli import COMMANDS
from frameledger_services.log_events import EVENTS
from frameledger_services.settings import Settings
from frameledger_services.store.tables import metadata
from frameledger_services.telemetry.metrics import METRICS

MENU = "infra/mkdocs.yml"
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def pages() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".md")}


def headings(page: str) -> set[str]:
    """Returns the anchors of a page, as GitHub and MkDocs create them."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in re.findall(r"^#+ (.*)$", prose, re.M))
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken(found: dict[str, str], root: Path = ROOT) -> list[str]:
    """Returns each link to a missing file or heading."""
    wrong = []
    for name, text in found.items():
        for target, anchor in LINK.findall(text):
            path = (root / name).parent.joinpath(target).resolve() if target else root / name
            page = found.get(path.relative_to(root).as_posix(), "") if path.is_relative_to(root) else ""
            if not path.is_file() or (anchor and anchor not in headings(page)):
                wrong.append(f"{name}: {target}#{anchor}")
    return wrong


def missing_from_menu(listed: list[str], menu: str) -> list[str]:
    """Returns pages that are not in the menu exactly once, and entries that are not pages."""
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


def not_installed(page: str) -> list[str]:
    """Returns the install commands for what code of a page imports, if the page does not show them."""
    code = [(found["language"], found["text"]) for found in FENCE.finditer(page)]
    python = "".join(text for language, text in code if language == "python")
    imported = set(re.findall(r"^(?:from|import) (\w+)", python, re.M)) - sys.stdlib_module_names
    saved = {found["title"].removesuffix(".py") for found in FENCE.finditer(page) if found["title"]}
    # A page that imports our tests says that they are in a checkout.
    ours = {"frameledger", "frameledger_services", "tests", *saved}
    wanted = {("pip install", name.replace("_", "-")) for name in imported - ours}
    wanted |= {
        ("npm install", name)
        for _, text in code
        for name in re.findall(r'^import .* from "(.+)";$', text, re.M)
    }
    return sorted(f"{how} {name}" for how, name in wanted if f"{how} {name}" not in page)


def test_a_page_says_how_to_install_what_its_code_imports():
    wrong = {name: not_installed(text) for name, text in pages().items() if "/how-to/" in name}
    assert {name: packages for name, packages in wrong.items() if packages} == {}
    assert not_installed(
        '```python\nimport re\nfrom shop_floor import x\n```\n```js\nimport {y} from "@a/b";\n```\n'
    ) == [
        "npm install @a/b",
        "pip install shop-floor",
    ]


def test_the_readme_leads_to_every_how_to():
    there = {name for name in pages() if name.startswith("infra/docs/how-to/")}
    assert there <= {target for target, _ in LINK.findall(texts()["README.md"])}


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


OF_COMMANDS = {
    f"services/frameledger_services/cli/{command.module.replace('.', '/')}.py"
    for command in COMMANDS.values()
}
"""The modules that have a command. `GROUPS` names them, and `cli/README.md` sends its reader there."""


def modules_missing_from(readme: str, found: dict[str, str]) -> list[str]:
    """The Python modules below a README's folder that it does not name as code, but for those with a nearer README, and
    those that the list of commands names."""
    room = readme.removesuffix("README.md")
    nearer = [
        name.removesuffix("README.md") for name in found if name.endswith("/README.md") and name != readme
    ]
    named = set(re.findall(r"`(?:[\w/]*/)?(\w+)(?:\.py)?`", found[readme]))
    modules = (Path(name) for name in found if name.startswith(room) and name.endswith(".py"))
    return [
        path.as_posix()
        for path in modules
        if not path.stem.startswith("__")
        and path.stem not in named
        and path.as_posix() not in OF_COMMANDS
        and not any(path.as_posix().startswith(other) and other.startswith(room) for other in nearer)
    ]


def rooms_with_a_readme() -> list[str]:
    rooms = "services/frameledger_services/"
    return sorted(name for name in pages() if name.startswith(rooms) and name.endswith("/README.md"))


@pytest.mark.parametrize("readme", rooms_with_a_readme())
def test_the_readme_of_a_room_names_every_module(readme):
    assert modules_missing_from(readme, texts()) == []


def test_a_module_that_the_readme_of_its_room_does_not_name_is_found():
    room = {"a/README.md": "`one`, `two.py`, `deep/four`; three", "a/b/README.md": "`other`"}
    for name in ("one", "two", "three", "deep/four", "b/five", "__init__"):
        room[f"a/{name}.py"] = ""
    assert modules_missing_from("a/README.md", room) == ["a/three.py"]


def places_of_recipes(found: dict[str, str]) -> dict[str, bool]:
    """The files and folders that a README tells to change to add something, and whether they are there. Those with a
    name of the reader's own are left out: it has a capital letter, a star, or `acme` in it."""
    there = "".join(f"/{name}\n" for name in found)
    places = {}
    for name, text in found.items():
        recipes = (
            re.findall(r"^## To add .*?(?=^## |\Z)", text, re.M | re.S) if name.endswith("README.md") else ()
        )
        for recipe in recipes:
            prose = re.sub(r"^ *```.*?^ *```$", "", recipe, flags=re.M | re.S)
            for place in re.findall(r"`(?:\.\./)*((?:\w+/)*(?:\w+\.\w+|\w+/))`", prose):
                if place == place.lower() or place.endswith("README.md"):
                    places[f"{name}: {place}"] = f"/{place}" in there
    return {place: is_there for place, is_there in places.items() if "acme" not in place}


def test_a_recipe_names_files_that_are_there():
    places = places_of_recipes(texts())
    assert len(places) > 20
    assert [place for place, is_there in places.items() if not is_there] == []


def test_a_recipe_that_names_a_file_of_yesterday_is_found():
    recipe = "`gone.py`\n## To add a thing\n`a/one.py`, `../b/`, `two.py`, `GROUP.py`, `acme.py`\n```\n`x.py`\n```\n"
    found = {"a/README.md": recipe, "a/one.py": "", "b/three.py": ""}
    assert places_of_recipes(found) == {
        "a/README.md: a/one.py": True,
        "a/README.md: b/": True,
        "a/README.md: two.py": False,
    }


@pytest.mark.parametrize(
    ("page", "listed"),
    [
        ("settings.md", [f"`FRAMELEDGER_{name.upper()}`" for name in Settings.model_fields]),
        ("commands.md", [f"\n`frameledger {name}" for name in COMMANDS]),
        ("metrics.md", [f"`{name}`" for name in METRICS]),
        ("logs.md", [f"`{name}`" for name in EVENTS]),
        (
            "sql.md",
            [*(f"### {name}\n" for name in metadata.tables), "`transcript`", "`context_at(text, bigint)`"],
        ),
        (
            "python.md",
            [
                "#### Client.publish\n",
                "\npublish(context_id: str, ",
                "- `idempotency_key`: ",
                "#### LLMAdapter.",
            ],
        ),
    ],
)
def test_a_list_on_the_site_has_everything_that_the_code_has(page, listed):
    reference = runpy.run_path(str(ROOT / "infra" / "docs" / "reference.py"))
    filled = reference["filled"](texts()[f"infra/docs/{page}"])
    assert "<!--" not in filled
    assert [one for one in listed if one not in filled] == []


@pytest.mark.regression("fault 304", "fault 305")
def test_the_sql_reference_has_types_of_postgresql_columns_of_views_and_parameters_of_functions():
    reference = runpy.run_path(str(ROOT / "infra" / "docs" / "reference.py"))
    filled = reference["filled"](texts()["infra/docs/sql.md"])
    types = re.findall(r"^\| `\w+` \| ([^`|]+) \|", filled.partition("## Tables")[2], re.M)
    assert {"bytea", "json", "text[]", "timestamp with time zone"} <= set(types)
    assert [one for one in types if one.split(" COLLATE ")[0] != one.split(" COLLATE ")[0].lower()] == []
    assert "\n### facts_runs\n" in filled
    assert "\n| `first_text_s` | Seconds " in filled
    assert "\n| `context_at(text, bigint)` | `context_id`, `version` (optional) | Returns " in filled


@pytest.mark.regression("fault 306")
def test_no_example_creates_settings_without_values():
    # They have no servers: nothing is read from the environment, nor from a running `up`.
    code = [(page, found["text"]) for page, text in pages().items() for found in FENCE.finditer(text)]
    assert any("SyncClient()" in text for _, text in code)
    assert [page for page, text in code if "Settings()" in text] == []


@pytest.mark.regression("journey 97")
def test_every_name_that_the_page_of_the_python_api_imports_is_there():
    rows = re.findall(r"^\| .*? \| (.*) \|$", texts()["infra/docs/python.md"], re.M)
    told = [found for row in rows for found in re.findall(r"([^;|]*?) from `([\w.]+)`", row)]
    named = {(module, name) for names, module in told for name in re.findall(r"`(\w+)`", names)}
    assert {("frameledger.record", "decode"), ("frameledger_services.client", "SyncClient")} <= named
    assert [(module, name) for module, name in named if not hasattr(import_module(module), name)] == []


def test_the_page_of_limits_has_each_with_its_default():
    page = texts()["infra/docs/how-to/limits.md"]
    rows = re.findall(r"^\| `FRAMELEDGER_(LIMIT_\w+)` \| ([\d,]+)( MiB)? \| `\w+` \|", page, re.M)
    told = {
        name.lower(): int(number.replace(",", "")) * (1 << 20 if unit else 1) for name, number, unit in rows
    }
    fields = {name: field for name, field in Settings.model_fields.items() if name.startswith("limit_")}
    assert told == {name: field.default for name, field in fields.items()}
    own = page.partition("## Limits of a conversation")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.+?) \|", own, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(NAMES)


def test_every_setting_that_a_page_names_is_one():
    known = {f"FRAMELEDGER_{name.upper()}" for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    # Commands print these from the wheel, or the page is about a typo.
    named = re.compile(r"\bFRAMELEDGER_[A-Z_]+\b(?!\.\.\.)")
    found = {(page, name) for page, text in pages().items() for name in named.findall(text)}
    assert sorted((page, name) for page, name in found if name not in known and not name.endswith("_")) == []


def test_the_table_of_commands_is_that_of_the_command_line():
    text = texts()["infra/docs/commands.md"]
    written = runpy.run_path(str(ROOT / "infra" / "docs" / "commands.py"))["page"]()
    assert text == written, "run: python infra/docs/commands.py"
    assert set(re.findall(r"^\| `([a-z]+)`", text, re.M)) == {*COMMANDS}


def test_every_command_that_a_page_names_is_one():
    named = re.compile(r"(?:^\$ |^|`)(?:\.venv/bin/)?frameledger ([a-z]+)", re.M)
    blocks_and_words = re.compile(r"^```(?:sh|console|text).*?^```$|`[^`\n]+`", re.M | re.S)
    found = {
        (page, name)
        for page, text in pages().items()
        for said in blocks_and_words.findall(text)
        for name in named.findall(said)
    }
    assert len(found) > 20
    assert sorted((page, name) for page, name in found if name not in COMMANDS) == []


def test_the_glossary_has_every_state_that_sql_shows():
    glossary = texts()["infra/docs/glossary.md"]
    checks = {
        str(check.sqltext)
        for table in (metadata.tables["frames"], metadata.tables["runs"], metadata.tables["tool_calls"])
        for check in table.constraints
        if isinstance(check, CheckConstraint)
        and check.name in ("frames_outcome_check", "runs_status_check", "tool_calls_status_check")
    }
    words = {word for check in checks for word in re.findall(r"'([a-z_]+)'", check)}
    assert len(words) > 15
    assert sorted(word for word in words if f"`{word}`" not in glossary) == []


def test_every_frame_on_the_page_for_other_languages_is_one_with_known_fields():
    page = texts()["infra/docs/how-to/publish.md"]
    shown = [json.loads(found) for found in re.findall(r"\{\"type\": .*\}(?=')", page)]
    assert len(shown) >= 2
    for wire in shown:
        frame_type = FRAME_TYPES[wire["type"]]
        parse_frame(json.dumps(wire).encode())
        assert wire.keys() - {"type"} <= frame_type.model_fields.keys()
