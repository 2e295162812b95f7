"""Every error has one name, one root, one kind that says what its caller does, and a remedy on `services/errors.md`."""

import re
import runpy
from collections import Counter

import pytest
from tests.unit.test_repository import ROOT

from frameledger import errors
from frameledger_services.cli import COMMANDS
from frameledger_services.settings import PREFIX, Settings

PAGE = runpy.run_path(str(ROOT / "infra" / "docs" / "errors.py"))
KINDS, TOP, ancestors = PAGE["KINDS"], PAGE["TOP"], PAGE["ancestors"]
EXCEPTIONS = PAGE["exceptions"]()
LISTED = PAGE["listed"]()


def test_the_page_says_what_the_classes_say():
    assert PAGE["PAGE"].read_text(encoding="utf-8") == PAGE["page"](), "run: python infra/docs/errors.py"


def test_every_public_error_derives_from_the_root_and_is_on_the_page():
    # What derives from `BaseException` is no error: nothing went wrong, and nobody is to catch it.
    went_wrong = [one for one in EXCEPTIONS if "BaseException" not in one.bases]
    public = {one.name for one in went_wrong if not one.name.startswith("_")}
    assert {one.name for one in LISTED} == public - {TOP, *KINDS}
    page = PAGE["page"]()
    assert [one.name for one in LISTED if f"`{one.name}`" not in page] == []


def test_an_error_has_one_name_and_a_name_one_error():
    names = Counter(one.name for one in EXCEPTIONS if not one.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("error", LISTED, ids=lambda error: error.name)
def test_an_error_says_when_it_happens_and_what_to_do_and_is_of_one_kind(error):
    assert error.cause.endswith(".")
    assert error.remedy.endswith(".")
    kinds = ancestors(error) & KINDS.keys()
    if not kinds:
        # A family: then all of its members are.
        members = [one for one in LISTED if error.name in ancestors(one)]
        leaves = [one for one in members if not any(one.name in ancestors(other) for other in members)]
        assert leaves
        assert all(ancestors(one) & KINDS.keys() for one in leaves)
    assert len(kinds) <= 1


def test_remedies_name_settings_and_commands_that_there_are():
    page = PAGE["page"]()
    settings = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(rf"{PREFIX}\w+", page)) <= settings
    assert set(re.findall(r"`frameledger (\w+)", page)) <= set(COMMANDS)


def test_check_fails_for_a_page_that_is_out_of_date(monkeypatch, tmp_path, capsys):
    values = PAGE["main"].__globals__
    monkeypatch.setitem(values, "ROOT", tmp_path)
    monkeypatch.setitem(values, "PAGE", tmp_path / "errors.md")
    monkeypatch.setitem(values, "page", lambda: "new")
    assert PAGE["main"](["--check"]) == 1
    assert "out of date: errors.md" in capsys.readouterr().err
    assert PAGE["main"]([]) == 0
    assert PAGE["main"](["--check"]) == 0


def test_each_kind_is_the_root_s_and_what_is_not_found_is_a_lookup_error():
    for kind in KINDS:
        assert issubclass(getattr(errors, kind), errors.FrameledgerError)
    assert issubclass(errors.NotFoundError, LookupError)
