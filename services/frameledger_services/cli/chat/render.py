"""What `frameledger chat` shows: an answer while it comes, functions in a dim line each, and what went wrong."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from frameledger.async_tool_messages import CANCELLED
from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TextFrame,
)
from frameledger_services.cli.terminal import escape, format_frame
from frameledger_services.cli.terminal.format_fold import plain

PROMPT = "> "

CUT_SHORT = "It was cut short here."
REJECTED = "That was not taken: an answer is being given."
UNUSUAL_ENDS = {
    "length": "It was cut off: it had no more tokens.",
    "content_filter": "It was cut off: the provider let no more of it through.",
}


class Screen:
    """A conversation on a terminal, from top to bottom."""

    def __init__(self, console: Console, context_id: str) -> None:
        self.heard = ""
        """What was printed of the answer that is being given, or was given last."""

        self.prompted = False
        """Whether the prompt is the last thing that was printed."""

        self._console = console
        self._context_id = context_id
        self._within_line = False
        self._within_answer = False

    def prompt(self) -> None:
        """Ask for the next line."""
        self._fresh_line()
        self._console.print(Text(PROMPT, "bold cyan"), end="")
        self._within_line = self.prompted = True

    def typed(self, line: str) -> None:
        """What came without anybody having seen it typed."""
        self._fresh_line()
        self._console.print(Text.assemble((PROMPT, "bold cyan"), escape.lines(line)))

    def entered(self) -> None:
        """The terminal has shown a typed line, and its end."""
        self._within_line = self.prompted = False

    def say(self, text: str, style: str = "dim") -> None:
        """A line of ours."""
        self._fresh_line()
        self._console.print(Text(text, style))

    def copied(self, command: str) -> None:
        """A command to be copied: on a line of its own, which the terminal alone folds."""
        self._console.print(Text(f"  {command}", "dim"), soft_wrap=True)

    def show(self, frame: AnyFrame) -> None:
        """A frame of the conversation that counts."""
        match frame:
            case LLMFullResponseStartFrame():
                if self.heard and (frame.attempt or 1) > 1:
                    self.say(f"Attempt {frame.attempt} begins anew:")
                self.heard = ""
                self._within_answer = True
                self._fresh_line()
            case LLMTextFrame() | TextFrame(type="TextFrame"):
                self._speak(frame.text)
            case InterruptionFrame() if self._within_answer:
                self._within_answer = False
                self.say(CUT_SHORT, "yellow")
            case LLMFullResponseEndFrame(finish_reason=reason):
                self._within_answer = False
                self._fresh_line()
                if reason in UNUSUAL_ENDS:
                    self.say(UNUSUAL_ENDS[reason], "yellow")
            case FunctionCallsStartedFrame():
                for call in frame.function_calls:
                    self.say(f"  {call.function_name} {escape.one_line(plain(call.arguments))}")
            case FunctionCallInProgressFrame(waiting=waiting) if waiting is not None:
                self.waits(frame.tool_call_id, frame.function_name, waiting.for_)
            case FunctionCallResultFrame():
                self.say(f"  {frame.function_name} = {escape.one_line(plain(frame.result))}")
                if frame.settled_as == "ambiguous":
                    self.say("  Once you know what became of it:")
                    self.copied(format_frame.settle_command("resolve", self._context_id, frame.tool_call_id))
            case FunctionCallCancelFrame():
                self.say(f"  {frame.function_name} = {CANCELLED}")
            case ErrorFrame():
                self.say(format_frame.error(frame), "red")
            case _:
                pass

    def waits(self, tool_call_id: str, function_name: str, for_: str) -> None:
        """A call waits for somebody from now on."""
        self.say(f"  {function_name} waits for {escape.one_line(for_)}; answer it:")
        self.copied(format_frame.settle_command("answer", self._context_id, tool_call_id))

    def _speak(self, piece: str) -> None:
        if not self.heard:
            self._fresh_line()
            piece = piece.lstrip()
        if piece:
            self.heard += piece
            self._console.print(escape.lines(piece), end="", soft_wrap=True, markup=False)
            self._within_line = not piece.endswith("\n")

    def _fresh_line(self) -> None:
        if self._within_line:
            self._console.print()
        self._within_line = self.prompted = False
