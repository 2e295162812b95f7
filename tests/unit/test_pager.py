"""The pager: which program is used, its input, and plain lines for a file or a pipe."""

import io
from types import SimpleNamespace

import pytest

from frameledger_services.cli.terminal import pager


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard output that is a terminal, of a person who set nothing."""
    for name in ("PAGER", "LESS", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    shown = Terminal()
    monkeypatch.setattr(pager, "sys", SimpleNamespace(stdout=shown))
    return shown


def written(preferred=None):
    with pager.page(preferred) as page:
        page.line(("one", "red"), (" and two", ""))


def test_a_terminal_gets_color_through_the_pager(terminal, monkeypatch, tmp_path):
    monkeypatch.setenv("PAGER", f"cat > {tmp_path}/paged; echo $LESS > {tmp_path}/less")
    written()
    assert (tmp_path / "paged").read_text() == "\x1b[31mone\x1b[0m and two\n"
    assert (tmp_path / "less").read_text() == "FRX\n"
    assert terminal.getvalue() == ""


def test_the_setting_outranks_the_variable(terminal, monkeypatch, tmp_path):
    monkeypatch.setenv("PAGER", f"cat > {tmp_path}/variable")
    written(f"cat > {tmp_path}/setting")
    assert [path.name for path in tmp_path.iterdir()] == ["setting"]


@pytest.mark.parametrize("none", ["", "cat", " "])
def test_no_pager_is_wanted(terminal, monkeypatch, none):
    monkeypatch.setenv("PAGER", none)
    written()
    assert terminal.getvalue() == "\x1b[31mone\x1b[0m and two\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_is_wanted(terminal, monkeypatch, name, value):
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv(name, value)
    written()
    assert terminal.getvalue() == "one and two\n"


def test_what_is_no_terminal_gets_plain_lines_of_a_constant_width(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(pager, "sys", SimpleNamespace(stdout=shown))
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setenv("COLUMNS", "30")
    with pager.page() as page:
        page.line(("x" * 200, "red"))
    assert shown.getvalue() == "x" * 99 + "…\n"


def test_whoever_closes_the_pager_has_read_enough(terminal, monkeypatch):
    monkeypatch.setenv("PAGER", "head -1 > /dev/null")
    with pager.page() as page:
        for _ in range(100_000):
            page.line(("many lines", ""))


@pytest.mark.regression("fault 272")
def test_ctrl_c_while_the_pager_has_not_read_everything_does_not_leave_it_behind(terminal, monkeypatch):
    """The terminal sends it to both, and the pager keeps running. What it has not read is still being written."""

    class Unread(io.StringIO):
        def close(self):
            if not self.closed:
                super().close()
                raise KeyboardInterrupt

    waits = []
    process = SimpleNamespace(stdin=Unread(), wait=lambda: waits.append("for the pager"))
    monkeypatch.setattr(pager, "_started", lambda _: process)
    monkeypatch.setenv("PAGER", "less")
    written()
    assert waits == ["for the pager"]


def test_a_line_is_cut_by_the_columns_that_it_takes(terminal, monkeypatch):
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("NO_COLOR", "1")
    with pager.page() as page:
        page.line(("\N{CJK UNIFIED IDEOGRAPH-6F22}" * 20, ""), ("not shown", ""))
    assert terminal.getvalue() == "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 14 + "…\n"
    assert pager.padded("\N{CJK UNIFIED IDEOGRAPH-6F22}x", 4) == "\N{CJK UNIFIED IDEOGRAPH-6F22}x "


def test_what_is_more_than_lines_goes_the_same_way(terminal, monkeypatch, tmp_path):
    monkeypatch.setenv("PAGER", f"cat > {tmp_path}/paged")
    monkeypatch.setenv("TERM", "xterm")
    with pager.page() as page:
        page.console().print("one", style="red")
    assert (tmp_path / "paged").read_text() == "\x1b[31mone\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    with pager.page() as page:
        page.console().print("one", style="red")
    assert (tmp_path / "paged").read_text() == "one\n"
