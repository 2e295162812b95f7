"""The number of modules that each `frameledger` command imports. Counted, not timed."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from tests.support.tiers import long
from typer.testing import CliRunner

from frameledger_services import cli
from frameledger_services.cli import COMMANDS, application
from frameledger_services.cli.terminal.lazy_commands import imported

LARGE = {
    "aiokafka",
    "alembic",
    "anthropic",
    "mako",
    "openai",
    "psycopg",
    "pydantic",
    "sqlalchemy",
    "structlog",
}
OURS = "frameledger_services"


def modules_after(program: str, *arguments: str) -> set[str]:
    """All modules of a new process after this program."""
    told = (
        f"import sys\nsys.argv[1:] = {list(arguments)!r}\ntry:\n    {program}\nexcept SystemExit:\n    pass\n"
    )
    told += "print('\\n' + ' '.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines()[-1].split())


def called(*arguments: str) -> set[str]:
    return modules_after(f"from {OURS}.cli import main; main()", *arguments)


@pytest.mark.regression("journey 16")
@pytest.mark.parametrize("argument", ["--version", "--help", "-h"])
def test_version_and_help_import_no_command(argument):
    loaded = called(argument)
    assert loaded & LARGE == set()
    assert {name for name in loaded if name.startswith(OURS)} == {
        OURS,
        f"{OURS}.extras",
        *(f"{OURS}.cli{module}" for module in ("", ".terminal", ".terminal.lazy_commands")),
    }


@pytest.mark.regression("journey 16")
@pytest.mark.parametrize(
    ("command", "needs"),
    [
        long("config", {"psycopg", "pydantic"}),
        long("transcript", {"psycopg", "pydantic"}),
        long("list", {"psycopg", "pydantic"}),
        long("logs", {"psycopg", "pydantic"}),
        ("publish", {"aiokafka", "psycopg", "pydantic"}),
    ],
)
def test_a_command_imports_what_it_works_with(command, needs):
    assert called(command, "--help") & LARGE == needs


def test_what_a_command_imports_is_hardly_looked_through_for_garbage():
    program = """
import atexit, gc
# The last to be called: who is registered first.
@atexit.register
def tell():
    print(sum(one["collections"] for one in gc.get_stats()), gc.get_freeze_count(), len(gc.get_objects()))
from frameledger_services.__main__ import main
main()
"""
    told = subprocess.run(
        [sys.executable, "-c", program, "run", "--help"], capture_output=True, text=True, check=True
    )
    collections, frozen, left = map(int, told.stdout.splitlines()[-1].split())
    assert collections < 20
    assert frozen > 100 * left


@pytest.mark.regression("journey 37")
def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback():
    program = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "frameledger_services.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from frameledger_services.__main__ import main
main()
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (130, "")


@pytest.mark.regression("journey 16")
def test_the_client_and_the_core_stay_lean():
    assert modules_after("import frameledger.frames") & LARGE == {"pydantic"}
    assert modules_after(f"import {OURS}.client") & LARGE == {"aiokafka", "psycopg", "pydantic"}


@pytest.mark.regression("journey 16")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_not_imported_yet_says_what_it_says_afterwards(name):
    help_ = imported(name, COMMANDS).help
    assert " ".join(help_.split("\n\n")[0].split()) == COMMANDS[name].line


@pytest.mark.regression("journey 138")
def test_a_command_imports_no_module_of_an_extra_that_it_does_not_name():
    program = """
import sys
from frameledger_services.cli import COMMANDS
from frameledger_services.cli.terminal.lazy_commands import imported
from frameledger_services.extras import MODULES
for extras in (), ("services",):
    missing = {module for extra in MODULES for module in MODULES[extra]} - sys.modules.keys()
    missing -= {module for extra in ("cli", *extras) for module in MODULES[extra]}
    sys.modules |= dict.fromkeys(missing)
    for name, command in COMMANDS.items():
        if command.extras == extras and name != "infer":  # which needs any of three
            imported(name, COMMANDS)
    for module in missing:
        del sys.modules[module]
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_every_command_of_every_module_is_listed():
    def names(module):
        app = typer.Typer()
        app.add_typer(import_module(f"{OURS}.cli.{module}").commands)
        return set(typer.main.get_group(app).commands)

    top = Path(cli.__file__).parent
    files = {path.relative_to(top).with_suffix("") for path in top.rglob("*.py")}
    modules = {".".join(file.parts) for file in files if file.name != "__init__"}
    having = {m for m in modules if hasattr(import_module(f"{OURS}.cli.{m}"), "commands")}
    assert {name: lazily.module for name, lazily in COMMANDS.items()} == {
        name: module for module in having for name in names(module)
    }


def test_a_command_that_is_not_there_is_guessed_without_importing_any():
    result = CliRunner().invoke(application(), ["statsu"])
    assert result.exit_code == 2
    assert "Did you mean 'status'" in result.output


@pytest.mark.regression("journey 16")
def test_a_shell_completes_the_names_of_commands_and_then_their_options():
    def completed(words):
        environment = {"_FRAMELEDGER_COMPLETE": "complete_bash", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        return CliRunner().invoke(application(), [], prog_name="frameledger", env=environment).output.split()

    assert completed("frameledger tra") == ["transcript"]
    assert "--everything" not in completed("frameledger transcript --")
    assert {"--all", "--at", "--json"} <= set(completed("frameledger transcript --"))


@pytest.mark.regression("journey 16")
def test_completion_can_be_installed():
    assert "--install-completion" in CliRunner().invoke(application(), ["--help"]).output
