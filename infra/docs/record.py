"""Record the demo as a picture of a terminal: `make picture` writes `demo.svg`, on the servers that the demo starts.

Two recordings differ in what differs between two demos: ids, ports, and the number of frames of an answer. The picture
contains no font and no script; a browser shows it in its own monospace font.
"""

import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from frameledger_services.__main__ import main as frameledger
from frameledger_services.cli import application
from frameledger_services.cli.terminal import output
from frameledger_services.forked_command import BecomeCommand

PICTURE = Path(__file__).with_name("demo.svg")
WIDTH = 100
KEPT = (
    ("$ frameledger demo", "Can they wait for me?"),
    ("── The client changes the tools", "── The passenger sends a photograph"),
    ("Verified:", "rebuilt from Kafka."),
)
"""The passages in the picture: a text of the first and of the last line of each."""

FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Run the demo in an empty folder, and write its picture. Exits with the demo's exit code if that is not 0."""
    recorded = Console(width=WIDTH, record=True, file=io.StringIO(), highlight=False, emoji=False)
    output.console = lambda: recorded
    process, folder = os.getpid(), tempfile.mkdtemp()
    os.chdir(folder)
    try:
        code = application()(["demo", "--speed", "20"], standalone_mode=False)
    except BecomeCommand as service:
        # In a process that the demo forked for one of its services: the folder is the demo's to remove.
        sys.argv[1:] = service.words
        frameledger()
        return
    finally:
        if os.getpid() == process:
            shutil.rmtree(folder)
    if code:
        sys.exit(code)
    PICTURE.write_text(picture(recorded.export_text(styles=True)), encoding="utf-8")


def picture(printed: str) -> str:
    """Returns this text, which may have colours, as an SVG picture of a terminal."""
    shown = Console(width=WIDTH, record=True, file=io.StringIO(), highlight=False, emoji=False)
    lines = [Text.from_ansi(line) for line in f"$ frameledger demo\n{printed.strip()}".splitlines()]
    for first, last in KEPT:
        if first != KEPT[0][0]:
            shown.print("\n        ⋮\n", style="dim")
        begin, end = (
            next(at for at, line in enumerate(lines) if text in line.plain) for text in (first, last)
        )
        for line in lines[begin : end + 1]:
            shown.print(line)
    svg = shown.export_svg(title="frameledger demo", theme=MONOKAI, code_format=FRAME, unique_id="demo")
    return re.sub(r"[ \t]+$", "", svg, flags=re.M)


if __name__ == "__main__":
    main()
