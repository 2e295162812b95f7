"""The browser of the page tests: a named one, an installed one, or one that CI installs once."""

import os
import threading

import pytest
from playwright.sync_api import Error
from tests.support import browsers

CI = {"CI": "true"}
PERSON = {"CI": ""}


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Makes programs on a path that has no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name, script="true"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    return make


@pytest.fixture
def packages(programs, tmp_path):
    """An apt-get that notes what it is told; an installation makes the browser."""
    said = tmp_path / "said"
    browser = tmp_path / "bin" / browsers.PACKAGE
    programs(
        "apt-get",
        f'echo "$*" >> {said}; case "$*" in *install*) printf "#!/bin/sh\\n" > {browser}; '
        f"/bin/chmod 755 {browser};; esac",
    )
    return lambda: said.read_text().splitlines() if said.exists() else []


def test_the_first_of_the_names_that_is_on_the_path_is_taken(programs):
    assert browsers.on_path() is None
    programs("google-chrome")
    shell = programs(browsers.PACKAGE)
    assert browsers.on_path() == shell


def test_ci_installs_one_once_whichever_process_comes_first(packages, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(browsers.installed(tmp_path, os.environ | CI, user=0)))
        for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [str(tmp_path / "bin" / browsers.PACKAGE)] * 3
    assert packages() == [" ".join(command[1:]) for command in browsers.COMMANDS]


@pytest.mark.parametrize(("environment", "user"), [(PERSON, 0), (CI, 1000)])
def test_nothing_is_installed_on_the_machine_of_a_person(packages, tmp_path, environment, user):
    assert browsers.installed(tmp_path, os.environ | environment, user) is None
    assert packages() == []


def test_what_cannot_be_installed_is_not_tried_again_and_is_no_failure(programs, tmp_path, capfd):
    said = tmp_path / "said"
    programs("apt-get", f"echo tried >> {said}; exit 100")
    for _ in range(2):
        assert browsers.installed(tmp_path, os.environ | CI, user=0) is None
    assert said.read_text().split() == ["tried"]
    assert "No browser could be installed" in capfd.readouterr().out


def test_a_browser_that_is_named_is_the_one_that_is_started(programs, tmp_path, monkeypatch):
    monkeypatch.setenv(browsers.VARIABLE, programs("mine", f"echo started > {tmp_path / 'mine'}; exit 1"))
    with pytest.raises(Error), browsers.running(tmp_path):
        pass
    assert (tmp_path / "mine").exists()


def test_without_one_it_says_how_to_get_one(programs, tmp_path, monkeypatch):
    for name in (browsers.VARIABLE, "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(browsers.NoBrowserError, match="playwright install"), browsers.running(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["bin"]
