"""A context's messages in Anthropic's form: user and assistant alternate, and the user begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frameledger import async_tool_messages
from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger_services.providers import anthropic_blocks as blocks_of
from frameledger_services.providers import pairing
from frameledger_services.providers.anthropic_blocks import Block
from frameledger_services.providers.errors import UnmappableError

OPENING = "(The conversation begins.)"
"""The user message that is inserted before an assistant message that would be the first."""

GOING_ON = "(Go on.)"
"""The user message that is appended after an assistant message that would be the last: the API would treat that as a
prefill."""

_THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(slots=True)
class _Placed:
    role: str
    block: Block
    stable: bool = True
    """Whether the next request will have the same block."""


class AnthropicMessages:
    """Checked and paired messages, as roles and blocks.

    - System and developer messages before the first user or assistant message are `system`. Later ones stay in place,
      as user text in a tag that names the role; so do results of background calls.
    - A refusal is text of the assistant, in a part of its content or in a field of the message.
    - Consecutive messages of one role are merged. In user messages the results of calls come first.
    - A stored thought is put before the assistant's next text or calls, and left out if there are none: a message must
      not end with one. A thought that nothing followed is replaced by a later one, of another answer.
    - This provider's own messages (`{"role", "content"}`) and own blocks of thoughts are not changed.
    """

    def __init__(
        self, provider: str, messages: Sequence[LLMContextMessage], *, unsigned_thoughts: bool = False
    ) -> None:
        self.system: list[str] = []
        """The texts of the first instructions."""
        self.called: dict[str, None] = {}
        """The names of the functions that are called in it, in order."""
        self._provider = provider
        self._unsigned_thoughts = unsigned_thoughts
        self._placed: list[_Placed] = []
        self._thoughts: list[Block] = []
        self._thought_at = -1
        unsettled = len(messages) - pairing.stray_results_at_end(messages)
        for place, message in enumerate(messages):
            first = len(self._placed)
            self._add(place, message)
            if place >= unsettled:
                for placed in self._placed[first:]:
                    placed.stable = False
        if not self._placed or self._placed[0].role != "user":
            # Stable only if an assistant message follows: a first user message would replace it.
            self._placed.insert(0, _Placed("user", _text(OPENING), stable=bool(self._placed)))
        if self._placed[-1].role != "user":
            self._placed.append(_Placed("user", _text(GOING_ON), stable=False))

    @property
    def marks(self) -> int:
        """The number of blocks that the client itself has marked for caching."""
        return sum(_marks(one.block) for one in self._placed)

    def mark_stable_end(self, cache_control: Mapping[str, Any]) -> bool:
        """Mark the last block up to which the next request will be the same, if one can be marked and the client has no
        mark at it or after it. Returns whether it did."""
        first = next((at for at, one in enumerate(self._placed) if not one.stable), len(self._placed))
        if any(_marks(one.block) for one in self._placed[first:]):
            return False
        for placed in reversed(self._placed[:first]):
            if _marks(placed.block):
                return False
            if placed.block["type"] not in _THINKING:
                placed.block = {**placed.block, "cache_control": cache_control}
                return True
        return False

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Returns the messages, with alternating roles."""
        merged: list[dict[str, Any]] = []
        for placed in self._placed:
            if not merged or merged[-1]["role"] != placed.role:
                merged.append({"role": placed.role, "content": []})
            merged[-1]["content"].append(placed.block)
        return merged

    def _add(self, place: int, message: LLMContextMessage) -> None:
        if isinstance(message, LLMSpecificMessage):
            self._add_own(place, message.message)
            return
        role = message["role"]
        match role:
            case "user":
                self._append("user", blocks_of.of_content(self._provider, place, message))
            case "assistant":
                calls = message.get("tool_calls") or ()
                self.called |= {call["function"]["name"]: None for call in calls}
                blocks = self._assistant_text(place, message)
                self._append("assistant", [*blocks, *map(blocks_of.tool_use, calls)])
            case "tool":
                block = blocks_of.tool_result(self._provider, place, message)
                # A call that has no result yet is written differently in a later request.
                settled = message.get("content") not in (async_tool_messages.IN_PROGRESS, pairing.NO_RESULT)
                self._placed.append(_Placed("user", block, stable=settled))
            case _:
                self._instruct(role, place, message)

    def _instruct(self, role: str, place: int, message: Mapping[str, Any]) -> None:
        text = "\n".join(block["text"] for block in self._text_blocks(role, place, message))
        if not text:
            return
        if not self._placed and not self._thoughts:
            self.system.append(text)
        else:
            self._append("user", [_text(f"<{role}>\n{text}\n</{role}>")])

    def _assistant_text(self, place: int, message: Mapping[str, Any]) -> list[Block]:
        """Returns the blocks of the assistant's text, or of its refusal."""
        for name in ("audio", "function_call"):
            if message.get(name):
                where = f"message {place + 1} of the request"
                raise UnmappableError(self._provider, f"the field {name!r} of {where}")
        blocks, refusal = self._text_blocks("assistant", place, message), message.get("refusal")
        return [*blocks, _text(refusal)] if isinstance(refusal, str) and refusal.strip() else blocks

    def _text_blocks(self, role: str, place: int, message: Mapping[str, Any]) -> list[Block]:
        """Returns the blocks of a message for which the API accepts only text."""
        blocks = blocks_of.of_content(self._provider, place, message)
        if any(block["type"] != "text" for block in blocks):
            where = f"message {place + 1} of the request"
            raise UnmappableError(self._provider, f"an image or a file in {where}, whose role is {role!r}")
        return blocks

    def _add_own(self, place: int, message: Any) -> None:
        match message:
            case {"type": "thought"}:
                self._think(blocks_of.thought(message, unsigned=self._unsigned_thoughts))
            case {"type": "thinking" | "redacted_thinking"}:
                self._think(dict(message))
            case {"role": "user" | "assistant" as role, "content": str(text)}:
                self._append(role, [_text(text)] if text.strip() else [])
            case {"role": "user" | "assistant" as role, "content": [*blocks]} if _are_blocks(blocks):
                self._append(role, [dict(block) for block in blocks])
            case _:
                where = f"message {place + 1} of the request"
                raise UnmappableError(
                    self._provider, f"{where}, which is its own and has no form that it takes"
                )

    def _think(self, block: Block | None) -> None:
        if block is None:
            return
        if self._thought_at != len(self._placed):
            self._thoughts.clear()
        self._thoughts.append(block)
        self._thought_at = len(self._placed)

    def _append(self, role: str, blocks: Iterable[Block]) -> None:
        placed = [_Placed(role, block) for block in blocks]
        if role == "assistant" and placed:
            placed = [*(_Placed(role, thought) for thought in self._thoughts), *placed]
            self._thoughts.clear()
        self._placed.extend(placed)


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _marks(block: Block) -> int:
    inner = block.get("content")
    nested = [one for one in inner if isinstance(one, Mapping)] if isinstance(inner, list | tuple) else []
    return sum("cache_control" in one for one in (block, *nested))


def _are_blocks(blocks: Sequence[object]) -> bool:
    return all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in blocks)
