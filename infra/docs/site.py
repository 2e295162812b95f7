"""A hook of MkDocs that adds all pages of the repository, under their paths, and the files that they link to."""

import re
from pathlib import Path

from mkdocs.structure.files import File, Files
from reference import filled

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("events", "services", "migrations", "tests", "infra")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def on_files(files, config):
    """Returns the files of the theme, and the repository's pages instead of those of `docs_dir`."""
    pages = sorted([*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))])
    linked = {
        (page.parent / target).resolve()
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    }
    others = sorted(path for path in linked - set(pages) if path.is_file() and path.is_relative_to(ROOT))
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *(_file(path, config) for path in (*pages, *others))])


def on_page_markdown(markdown, page, config, files):
    """Returns the page with the lists that are generated from the code."""
    return filled(markdown)


def _file(path, config):
    return File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
