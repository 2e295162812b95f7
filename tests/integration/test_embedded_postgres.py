"""The embedded PostgreSQL: the user that runs it, what it leaves behind, and its errors."""

import os
import pwd
import shutil
import signal
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.shared_memory import segments_of

from frameledger_services.embedded import ports, postgres_remains, postgres_user
from frameledger_services.embedded import postgres as embedded_postgres
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.running import running, start, stop, wait_until_ready

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
as_our_user = pytest.mark.skipif(
    os.geteuid() == 0 and not postgres_user.can_make_user_namespace(),
    reason="root cannot make user namespaces here, so it runs PostgreSQL as a system user",
)
linux_only = pytest.mark.skipif(not postgres_remains.SEGMENTS.exists(), reason="needs /proc")


def test_it_asks_for_the_password_which_only_its_owner_can_read(postgres):
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT current_user::text").fetchone() == ("frameledger",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.dsn, passfile=os.devnull)
    password_file = psycopg.conninfo.conninfo_to_dict(postgres.dsn)["passfile"]
    assert stat.S_IMODE(os.stat(password_file).st_mode) == 0o600


@pytest.mark.regression("journey 104")
@pytest.mark.parametrize(
    "variable",
    [
        ("PGPASSWORD", "of-another-server"),
        ("PGHOSTADDR", "127.0.0.9"),
        ("PGSSLMODE", "require"),
        ("PGCHANNELBINDING", "require"),
    ],
    ids="=".join,
)
def test_its_address_leads_to_it_whatever_the_environment_says_of_other_servers(
    postgres, monkeypatch, variable
):
    monkeypatch.setenv(*variable)
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.info.host == ports.HOST


@as_our_user
def test_it_listens_on_a_socket_in_the_data_directory_too(tmp_path):
    with (
        embedded_postgres.running(tmp_path) as server,
        psycopg.connect(server.dsn, host=str(tmp_path / "run")) as connection,
    ):
        assert connection.execute("SELECT inet_server_addr() IS NULL").fetchone() == (True,)
    assert list((tmp_path / "run").iterdir()) == []


@as_our_user
@pytest.mark.regression("journey 70")
def test_its_socket_is_in_a_folder_whose_name_reads_like_a_list(tmp_path):
    folder = tmp_path / ' a, "b",ü '
    with embedded_postgres.running(folder) as server, psycopg.connect(server.dsn):
        assert [path.is_socket() for path in (folder / "run").glob(".s.PGSQL.*[0-9]")] == [True]


def test_it_does_without_a_socket_where_a_path_is_too_long_for_one(tmp_path):
    deep = tmp_path / ("deep" * 30)
    with embedded_postgres.running(deep) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)


def test_the_older_one_of_the_package_runs_too_and_does_not_open_the_data_of_the_newer(tmp_path):
    with (
        embedded_postgres.running(tmp_path, version=16) as server,
        psycopg.connect(server.dsn) as connection,
    ):
        assert connection.info.server_version // 10_000 == 16
    with pytest.raises(EmbeddedError, match="was created by PostgreSQL 16") as caught:
        embedded_postgres.prepare(tmp_path, 1)
    assert "pg_dump" in caught.value.remedy


def test_what_was_written_is_there_after_a_clean_stop_and_after_sigkill(tmp_path):
    with embedded_postgres.running(tmp_path) as server, psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
    server = embedded_postgres.prepare(tmp_path, ports.choose(0))
    process = start(server.program)
    wait_until_ready(server.program, process)
    with psycopg.connect(server.dsn) as connection:
        connection.execute("INSERT INTO kept VALUES (2)")
    process.kill()
    process.wait(ON_SERVERS)
    with running(server.program), psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT number FROM kept ORDER BY number").fetchall() == [(1,), (2,)]


@linux_only
def test_a_killed_server_leaves_no_process_no_shared_memory_and_no_pid_file(tmp_path):
    server = embedded_postgres.prepare(tmp_path, ports.choose(0))
    process = start(server.program)
    wait_until_ready(server.program, process)
    connection = psycopg.connect(server.dsn)
    backend = psutil.Process(connection.info.backend_pid)
    # Like a long computation: it does not notice the end of its server.
    backend.suspend()
    process.send_signal(signal.SIGKILL)
    process.wait(ON_SERVERS)
    assert segments_of(process.pid)
    assert backend.is_running()
    stop(server.program, process)
    connection.close()
    assert not psutil.pid_exists(backend.pid)
    assert not segments_of(process.pid)
    assert not (server.data / "postmaster.pid").exists()


def test_a_pid_file_whose_number_is_another_process_now_does_not_keep_it_from_starting(tmp_path):
    server = embedded_postgres.prepare(tmp_path, ports.choose(0))
    (server.data / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data}\n", encoding="ascii")
    with running(server.program), psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_runs_already_is_left_alone(postgres):
    with pytest.raises(EmbeddedError, match="is already running"):
        postgres_remains.sweep(postgres.data)
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cluster_that_could_not_be_made_leaves_nothing_behind(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    initdb = broken / "bin" / "initdb"
    initdb.write_text(
        "#!/bin/sh\necho 'could not write: No space left on device'\nexit 1\n", encoding="ascii"
    )
    initdb.chmod(0o755)
    monkeypatch.setattr(embedded_postgres, "installation", lambda version: broken)
    with pytest.raises(EmbeddedError, match="No space left on device") as caught:
        embedded_postgres.prepare(tmp_path / "data", 1)
    assert "free disk space" in caught.value.remedy
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".gitignore", "logs", "run"]


@pytest.mark.long
@root_only
@as_our_user
def test_root_needs_no_other_permissions_on_any_folder(tmp_path):
    tmp_path.chmod(0o700)
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    with embedded_postgres.running(folder) as server:
        owners = {path.stat().st_uid for path in server.data.iterdir()}
    assert owners == {0}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, folder)} == {0o700}


@pytest.mark.long
@root_only
def test_root_without_namespaces_runs_it_as_a_system_user_in_an_open_folder(no_namespaces):
    with open_folder() as folder, embedded_postgres.running(folder) as server:
        assert_runs_as_system_user(server)
        assert server.data == folder / "postgres"


@pytest.mark.long
@root_only
def test_root_without_namespaces_keeps_it_elsewhere_if_the_folder_is_closed(tmp_path, no_namespaces):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    for _ in range(2):
        with embedded_postgres.running(folder) as server:
            assert_runs_as_system_user(server)
        assert server.data.is_relative_to(no_namespaces)
        assert str(server.data) in server.program.note
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.long
@root_only
@pytest.mark.regression("journey 48")
def test_root_without_namespaces_runs_a_copy_if_it_is_installed_for_root_alone(
    tmp_path, monkeypatch, no_namespaces, closed_by_default
):
    """As in a container, in an environment below `/root`, and with umask 077."""
    monkeypatch.setattr(postgres_user, "ELSEWHERE", no_namespaces / "is" / "made")
    packaged = embedded_postgres.installation(18)
    package, packages = packaged.parent.name, packaged.parents[1]
    closed = tmp_path / "site-packages"
    for name in (f"{package}/{packaged.name}", f"{package}.libs"):
        headers = shutil.ignore_patterns("include")
        shutil.copytree(packages / name, closed / name, symlinks=True, ignore=headers)
    for path in (closed, *closed.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & stat.S_IRWXU)
    monkeypatch.setattr(embedded_postgres, "installation", lambda _: closed / package / packaged.name)
    for _ in range(2):
        with embedded_postgres.running(tmp_path / "data") as server:
            assert_runs_as_system_user(server)
        assert server.binaries.is_relative_to(no_namespaces)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@root_only
@pytest.mark.regression("journey 137")
@pytest.mark.parametrize("is_closed", [False, True])
def test_data_of_a_system_user_is_used_by_it_also_once_there_are_namespaces(
    tmp_path, monkeypatch, no_namespaces, is_closed
):
    installed = embedded_postgres.installation(18)
    with open_folder() as folder:
        data = (tmp_path if is_closed else folder) / "data" / "postgres"
        before = postgres_user.find_place(installed, data)
        assert before.data.is_relative_to(no_namespaces) == is_closed
        before.data.mkdir(parents=True)
        before.give(before.data)
        monkeypatch.setattr(postgres_user, "can_make_user_namespace", lambda: True)
        assert postgres_user.find_place(installed, data) == before


@pytest.mark.regression("journey 137")
def test_ctrl_c_in_the_terminal_does_not_reach_the_question_whether_there_are_namespaces(
    tmp_path, monkeypatch
):
    probe = tmp_path / "probe.py"
    probe.write_text("import os, sys; sys.exit(os.getsid(0) != os.getpid())", encoding="ascii")
    monkeypatch.setattr(postgres_user, "LAUNCHER", probe)
    assert postgres_user.can_make_user_namespace.__wrapped__() is (sys.platform == "linux")


@root_only
def test_what_root_without_namespaces_cannot_write_is_said(tmp_path, monkeypatch, no_namespaces):
    (tmp_path / "file").touch()
    monkeypatch.setattr(postgres_user, "ELSEWHERE", tmp_path / "file" / "frameledger")
    monkeypatch.setattr(postgres_user, "_may_enter", lambda *_: False)
    with pytest.raises(
        EmbeddedError, match=r"cannot be written to .*/frameledger for the user .*: Not a dir"
    ):
        embedded_postgres.prepare(tmp_path / "data", 1)


@root_only
def test_a_copy_that_another_process_made_meanwhile_is_used(tmp_path, no_namespaces):
    installed = tmp_path / "package" / "pginstall"
    (installed / "bin").mkdir(parents=True)
    open_to_all, copied = postgres_user._open_to_all, []

    def interrupted(path):
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(postgres_user, "_open_to_all", open_to_all)
            meanwhile.setattr(os, "getpid", lambda: 0)
            copied.append(postgres_user._copied(installed))
        open_to_all(path)

    with pytest.MonkeyPatch.context() as first:
        first.setattr(postgres_user, "_open_to_all", interrupted)
        assert postgres_user._copied(installed) == copied[0]
    assert [folder.name for folder in no_namespaces.iterdir()] == [copied[0].parents[1].name]


@root_only
@pytest.mark.regression("fault 297")
def test_half_a_copy_of_a_killed_process_with_this_pid_is_replaced(tmp_path, no_namespaces):
    """As in a container that is started again."""
    installed = tmp_path / "package" / "pginstall"
    (installed / "bin").mkdir(parents=True)

    def killed(_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as first:
        first.setattr(postgres_user, "_open_to_all", killed)
        with pytest.raises(KeyboardInterrupt):
            postgres_user._copied(installed)
    copied = postgres_user._copied(installed)
    assert (copied / "bin").is_dir()
    assert [folder.name for folder in no_namespaces.iterdir()] == [copied.parents[1].name]


@pytest.fixture
def no_namespaces(monkeypatch):
    """Forbid user namespaces, and place files for the system user in a folder that all users can enter."""
    with open_folder() as elsewhere:
        monkeypatch.setattr(postgres_user, "can_make_user_namespace", lambda: False)
        monkeypatch.setattr(postgres_user, "ELSEWHERE", elsewhere)
        yield elsewhere


@pytest.fixture
def closed_by_default():
    """The umask 077."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@contextmanager
def open_folder():
    """A folder that everybody may enter; pytest's are closed to others."""
    with tempfile.TemporaryDirectory(prefix="frameledger-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def assert_runs_as_system_user(server):
    with psycopg.connect(server.dsn) as connection:
        owner = psutil.Process(connection.info.backend_pid).uids().effective
    assert pwd.getpwuid(owner).pw_name in postgres_user.SYSTEM_USERS
    assert {path.stat().st_uid for path in server.data.iterdir()} == {owner}
