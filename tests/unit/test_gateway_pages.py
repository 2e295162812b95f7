"""The files of the web page: how they are answered, what they load, and that the libraries are as their makers made."""

import asyncio
import hashlib
import itertools
import json
import re
from urllib.parse import urljoin

import pytest
from tests.support.gateway import AWAY, app_of

from frameledger_services.gateway.pages import FOLDER, INDEX, files
from frameledger_services.settings import Settings
from frameledger_services.store import listing

VENDOR = FOLDER / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
VENDORED = [pytest.param(one, id=one["path"]) for package in MANIFEST["packages"] for one in package["files"]]
SOURCES = [
    name for name in files() if name.endswith((".js", ".html", ".css")) and not name.startswith("vendor/")
]
_IMPORTED = re.compile(r"""\bfrom ?['"]([\w./@][^'"]*)['"]""")
_LOADED = re.compile(r"""\bimport\('([^']+)'\)|(?:href|src)="(/page/[^"]+)"|url\("(/[^"]+)"\)""")


def ask(*paths, method="GET", **headers):
    async def asked():
        async with app_of(Settings(**AWAY)) as http:
            return [await http.request(method, path, headers=headers) for path in paths]

    return asyncio.run(asked())


@pytest.mark.parametrize("path", ["/", "/work", "/c/demo-1", "/c/acme%2Fcall%2F1", "/c/%C3%BC%3F%2525"])
def test_every_screen_is_the_same_file(path):
    [answer] = ask(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.content == (FOLDER / INDEX).read_bytes()
    assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "code"),
    [("/docs", "<code>type</code>"), ("/problems/unauthorised", "<code>Authorization: Bearer</code>")],
)
def test_a_page_of_text_has_the_colours_of_the_page_and_code_where_it_is_meant(path, code):
    [answer] = ask(path)
    assert '<link rel="stylesheet" href="/page/style.css">' in answer.text
    assert code in answer.text
    assert "`" not in answer.text


def test_the_help_explains_every_sign_above_the_lanes():
    lanes, keys = (files()[name].content.decode() for name in ("lanes.js", "keys.js"))
    [marked] = re.findall(r"MARKED = new Set\(\[(.*)\]\)", lanes)
    signs = dict(re.findall(r"^  (\w+): '(.+)',$", lanes, re.M))
    assert [signs[kind] for kind in re.findall(r"'(\w+)'", marked) if f"['{signs[kind]}', " not in keys] == []


def test_the_list_says_how_far_a_search_looks():
    searched = re.findall(r"^const (SEARCHED\w*) = ([\d_]+);", files()["list.js"].content.decode(), re.M)
    assert {name: int(count) for name, count in searched} == {
        "SEARCHED": listing.SEARCHED,
        "SEARCHED_BY_STATUS": listing.SEARCHED_BY_STATUS,
    }


def test_a_raw_slash_ends_an_id():
    [answer] = ask("/c/acme/call-1")
    assert answer.json()["type"] == "/problems/not-found"


def test_a_file_is_sent_again_only_if_it_changed():
    [first] = ask("/page/main.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    assert hashlib.sha256(first.content).hexdigest().startswith(first.headers["etag"].strip('"'))
    [again] = ask("/page/main.js", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    [other] = ask("/page/main.js", **{"If-None-Match": '"other"'})
    assert other.status_code == 200
    [head] = ask("/page/main.js", method="HEAD")
    assert (head.status_code, head.headers["etag"]) == (200, first.headers["etag"])


@pytest.mark.parametrize(
    "name",
    ["", "none.js", "../pages.py", "%2e%2e/pages.py", "..%2Fpages.py", "vendor", "/etc/passwd", "main.js/"],
)
def test_nothing_but_the_page_is_there(name):
    [answer] = ask(f"/page/{name}")
    assert answer.status_code == 404


def test_everything_in_the_folder_but_its_door_sign_is_served():
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert there == {*files(), "README.md"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_loads_only_what_the_page_has(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    for address in filter(None, [*_IMPORTED.findall(text), *itertools.chain(*_LOADED.findall(text))]):
        assert "//" not in address, f"{address} is of another origin"
        path = urljoin(f"/page/{name}", address)
        assert not path.startswith("/page/") or path.removeprefix("/page/") in files(), (
            f"{address} is not there"
        )


def test_modules_are_asked_for_at_once():
    """Otherwise a browser learns of a module when it has read the one that imports it."""
    found, left = set(), {"main.js"}
    while left:
        name = left.pop()
        found.add(name)
        imported = _IMPORTED.findall(files()[name].content.decode())
        left |= {urljoin(name, one) for one in imported} - found
    preloaded = re.findall(
        r'<link rel="modulepreload" href="/page/([^"]+)">', files()[INDEX].content.decode()
    )
    assert sorted(preloaded) == sorted(found - {"main.js"})


def test_what_a_page_may_not_do_is_in_none_of_its_files():
    for name in SOURCES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|\beval\(|new Function|document\.write|\bstyle=[\"']", text
        ), name


@pytest.mark.parametrize("one", VENDORED)
def test_a_library_is_as_its_package_has_it(one):
    content = (VENDOR / one["path"]).read_text(encoding="utf-8")
    for bare, relative in one.get("import", {}).items():
        assert f'"{relative}"' in content
        content = content.replace(f'"{relative}"', f'"{bare}"')
    assert hashlib.sha256(content.encode()).hexdigest() == one["sha256"]


def test_every_library_has_its_licence_and_nothing_is_without_a_hash():
    listed = {one["path"] for package in MANIFEST["packages"] for one in package["files"]}
    assert listed | {"manifest.json"} == {
        path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()
    }
    for package in MANIFEST["packages"]:
        assert "LICENSE" in {one["from"] for one in package["files"]}, package["name"]
