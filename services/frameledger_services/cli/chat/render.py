"""Output of `frameledger chat`: the answer as it arrives, function calls in dim lines, and errors."""

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
from frameledger_services.cli.terminal.format_message import plain

PROMPT = "> "

CUT_SHORT = "Interrupted."
REJECTED = "Rejected: an answer is in progress."
UNUSUAL_ENDS = {
    "length": "Truncated: the answer reached its token limit.",
    "content_filter": "Truncated by the provider's content filter.",
}


class Screen:
    """Prints a conversation on a terminal, line by line."""

    def __init__(self, console: Console, context_id: str) -> None:
        self.heard = ""
        """The printed text of the current or last answer."""

        self.prompted = False
        """Whether the prompt is the last thing that was printed."""

        self._console = console
        self._context_id = context_id
        self._within_line = False
        self._within_answer = False

    def prompt(self) -> None:
        """Print the prompt."""
        self._fresh_line()
        self._console.print(Text(PROMPT, "bold cyan"), end="")
        self._within_line = self.prompted = True

    def typed(self, line: str) -> None:
        """Print a line of input that the terminal did not echo."""
        self._fresh_line()
        self._console.print(Text.assemble((PROMPT, "bold cyan"), escape.lines(line)))

    def entered(self) -> None:
        """Record that the terminal echoed a typed line and its line break, possibly after words of an answer."""
        self._within_line, self.prompted = self._within_answer, False

    def say(self, text: str, style: str = "dim") -> None:
        """Print a line of the command itself, with control characters replaced."""
        self._fresh_line()
        self._console.print(Text(escape.printable(text), style))

    def copied(self, command: str) -> None:
        """Print a command for copying on a separate line, which only the terminal wraps."""
        self._console.print(Text(f"  {command}", "dim"), soft_wrap=True)

    def show(self, frame: AnyFrame) -> None:
        """Print an applied frame of the conversation."""
        match frame:
            case LLMFullResponseStartFrame():
                if self.heard and (frame.attempt or 1) > 1:
                    self.say(f"Attempt {frame.attempt} starts over:")
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
                    self.say("  Once you know whether it was executed:")
                    self.copied(format_frame.settle_command("resolve", self._context_id, frame.tool_call_id))
            case FunctionCallCancelFrame():
                self.say(f"  {frame.function_name} = {CANCELLED}")
            case ErrorFrame():
                self.say(format_frame.error(frame), "red")
            case _:
                pass

    def waits(self, tool_call_id: str, function_name: str, for_: str) -> None:
        """Print that a call waits for `for_`, with the command that answers it."""
        self.say(f"  {function_name} waits for {escape.one_line(for_)}; answer it:")
        self.copied(format_frame.settle_command("answer", self._context_id, tool_call_id))

    def _speak(self, piece: str) -> None:
        if not self.heard:
            self._fresh_line()
            piece = piece.lstrip()
        if piece:
            self.heard += piece
            self._console.print(escape.lines(piece), end="", soft_wrap=True)
            self._within_line = not piece.endswith("\n")

    def _fresh_line(self) -> None:
        if self._within_line:
            self._console.print()
        self._within_line = self.prompted = False
