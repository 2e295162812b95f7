"""Packs installed distributions as wheels again, to create environments without a network.

The wheels are not compressed. Installing from an index would take ten times the processor time, and the installed files
were verified when they were downloaded.
"""

from __future__ import annotations

import zipfile
from email import message_from_string
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path

MADE_BY_INSTALLERS = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"}


def packed(name: str, folder: Path) -> Path:
    """Write the wheel of an installed distribution into a folder."""
    one = distribution(name)
    (about,) = {file.parent for file in one.files or () if file.name == "WHEEL"}
    wheel = folder / f"{about.name.removesuffix('.dist-info')}-{_tag(one)}.whl"
    files = [file for file in one.files or () if _is_of_the_wheel(file, about)]
    with zipfile.ZipFile(wheel, "w") as content:
        for file in files:
            content.write(file.locate(), str(file))
        # Last, and without hashes: a wheel has to have it.
        content.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in files) + f"{about}/RECORD,,\n")
    return wheel


def _tag(one: Distribution) -> str:
    """Returns interpreters, ABIs and platforms, as in the name of the original wheel."""
    tags = message_from_string(one.read_text("WHEEL") or "").get_all("Tag") or []
    return "-".join(
        ".".join(sorted(set(parts))) for parts in zip(*(tag.split("-") for tag in tags), strict=True)
    )


def _is_of_the_wheel(file: PackagePath, about: PackagePath) -> bool:
    """Whether a file belongs in a wheel. The installer creates bytecode, and commands next to the interpreter."""
    if ".." in file.parts or file.suffix == ".pyc":
        return False
    return not (file.parent == about and file.name in MADE_BY_INSTALLERS)
