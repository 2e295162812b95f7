"""A client of OpenAI's API sends the whole history each time: what of it the conversation does not have yet.

**The rule.** What is stored and what is sent are compared as a client sees a conversation, message by message from the
beginning, and never as bytes:

1. *Seen* are users' messages and the words of the assistant. *Unseen* are what functions and operators add: calls and
   their results, thoughts, and system and developer messages. An unseen message that the client sends too is matched;
   one that it does not send is passed over, and stays.
2. Text is compared with each stretch of whitespace as one space, and none at its ends. Content as text and as parts
   is the same; parts that are no text are compared as JSON; a `name` counts.
3. What the assistant says between two messages of users is one text, in however many messages it is stored or sent: an
   answer goes on behind each call, and the client was sent it as one. Unseen messages that the client sends between its
   words are matched one by one.
4. Words that a background call caused when it reported, behind an answer that had ended, are seen by no client: they
   may be missing in what is sent.
5. An answer that was interrupted, or that failed, may have been cut in two places: of the text that is stored and the
   text that is sent the one may be the beginning of the other, or missing. That holds of no answer that came to its
   end: there a shorter text is an edit.
6. System and developer messages at the head of what is sent are the instruction. If they are not those at the head of
   what is stored, the instruction has changed.

If all that is stored and seen is matched, the rest of what is sent is **appended**; the rest may be empty, and then
only an answer is asked for. Otherwise somebody has edited, branched, or wants another answer: the history is
**replaced** by what is stored as far as it matches, with all that the client never saw, and by what is sent from
there on. The old history stays readable as the former era. So a client that edits one message does not lose what
functions said before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from frameledger import async_tool_messages

JsonObject = Mapping[str, Any]

INSTRUCTIONS = ("system", "developer")

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Held:
    """A message as the conversation has it."""

    message: JsonObject
    """In wire form."""

    is_cut: bool = False
    """It is of an answer that was interrupted or failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What makes the conversation the one that was sent."""

    kind: Literal["append", "replace"]
    messages: tuple[JsonObject, ...]
    """What is appended, which may be nothing; or the whole new history."""


def plan(held: Sequence[Held], sent: Sequence[JsonObject]) -> Plan:
    """Returns what is to be done so that the conversation is the one that was sent. See the module."""
    return _Comparison(held, _turns(sent)).result()


def has_nothing_in_common(held: Sequence[Held], sent: Sequence[JsonObject]) -> bool:
    """Returns whether users said something in the conversation, and nothing of it is among what is sent."""
    said = {_key(one.message) for one in held if one.message.get("role") == "user"}
    return bool(said) and said.isdisjoint(_key(one) for one in sent if one.get("role") == "user")


def text_of(message: JsonObject) -> str:
    """Returns the text of a message, its parts joined by line breaks; a refusal is text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [text for part in _parts(content) if (text := _text_of_part(part)) is not None]
    if isinstance(refusal := message.get("refusal"), str):
        texts.append(refusal)
    return "\n".join(texts)


@dataclass(slots=True)
class _Turn:
    """A message that was sent; or several of the assistant in a row."""

    kind: Literal["user", "assistant", "other"]
    key: Any
    messages: list[JsonObject]


def _turns(sent: Iterable[JsonObject]) -> list[_Turn]:
    turns: list[_Turn] = []
    for message in sent:
        if not _is_words(message):
            kind: Literal["user", "other"] = "user" if message.get("role") == "user" else "other"
            turns.append(_Turn(kind, _key(message), [message]))
        elif text := _squeezed(text_of(message)):
            if turns and turns[-1].kind == "assistant":
                turns[-1].messages.append(message)
                turns[-1].key += f" {text}"
            else:
                turns.append(_Turn("assistant", text, [message]))
        # An assistant's message without a word is a placeholder of an answer that never came.
    return turns


@dataclass(slots=True)
class _Comparison:
    """The comparison from the beginning; `at` and `turn` are how far it has come in what is held and sent."""

    held: Sequence[Held]
    turns: Sequence[_Turn]
    at: int = 0
    turn: int = 0
    kept: int = 0
    """How much of what is held stays if the history is replaced."""

    tried: int = 0
    """The turn up to which words and unseen messages were matched together, or could not be."""

    changed: dict[int, JsonObject | None] = field(default_factory=dict)
    """Messages that were cut, as the client has them."""

    head: list[JsonObject] | None = None
    """The instruction, if it has changed."""

    def result(self) -> Plan:
        self._instruction()
        while self.turn < len(self.turns) and self._step():
            self.turn += 1
        rest = [message for turn in self.turns[self.turn :] for message in turn.messages]
        behind = self._behind_unsent() if rest else self.at
        if self.head is None and not any(_is_seen(one.message) for one in self.held[behind:]):
            return Plan("append", tuple(rest))
        begin = 0 if self.head is None else self._end_of_head()
        kept = (self.changed.get(i, self.held[i].message) for i in range(begin, max(begin, self.kept)))
        return Plan("replace", (*(self.head or ()), *(one for one in kept if one is not None), *rest))

    def _instruction(self) -> None:
        if not self.held:
            return
        wanted: list[_Turn] = []
        for turn in self.turns:
            if turn.kind != "other" or turn.messages[0].get("role") not in INSTRUCTIONS:
                break
            wanted.append(turn)
        self.turn = len(wanted)
        self.at = self.kept = end = self._end_of_head()
        there = iter([_key(one.message) for one in self.held[:end]])
        if any(turn.key not in there for turn in wanted):
            self.head = [turn.messages[0] for turn in wanted]

    def _end_of_head(self) -> int:
        """Where the instructions end with which the history begins."""
        roles = (one.message.get("role") for one in self.held)
        return next((place for place, role in enumerate(roles) if role not in INSTRUCTIONS), len(self.held))

    def _step(self) -> bool:
        """Match the next turn. Returns whether it is held."""
        turn = self.turns[self.turn]
        if turn.kind != "user" and self.turn >= self.tried and self._alternating():
            return True
        if turn.kind == "assistant":
            return self._words(turn.messages)
        place = self._find(turn)
        if place is None:
            return False
        self.changed |= {one.place: None for one in self._region() if one.place < place and one.is_cut}
        self.at = self.kept = place + 1
        return True

    def _find(self, turn: _Turn) -> int | None:
        """Where a message stands that was sent: before anything else that a client sees."""
        for place in range(self.at, len(self.held)):
            message = self.held[place].message
            if _key(message) == turn.key:
                return place
            if _is_seen(message) and place >= self._behind_unsent():
                return None
        return None

    def _behind_unsent(self) -> int:
        """Behind words of the assistant that the client need not have."""
        words = self._region()
        if words and all(one.may_be_missing for one in words):
            return words[-1].place + 1
        return self.at

    def _alternating(self) -> bool:
        """Match the turns up to the next user's in which words and unseen messages alternate, as far as they are held:
        the words together, each unseen message by itself. Returns whether there are such turns; moves to the last."""
        users = (i for i in range(self.turn, len(self.turns)) if self.turns[i].kind == "user")
        self.tried = next(users, len(self.turns))
        behind = self._unseen_places()
        turns = self.turns[self.turn : self.turn + len(behind)]
        for count in (len(turns), self._as_long_as_held(turns)):
            words = [turn for turn in turns[:count] if turn.kind == "assistant"]
            if 0 < len(words) < count and self._words(
                [message for turn in words for message in turn.messages], behind[count - 1]
            ):
                self.turn += count - 1
                return True
        return False

    def _unseen_places(self) -> list[int]:
        """Of the turns up to the next user's, and up to the first unseen message that is not held: behind which place
        of what is held the unseen messages up to each are."""
        end = next((i for i in range(self.at, len(self.held)) if self._is_user(i)), len(self.held))
        keys = {place: _key(self.held[place].message) for place in range(self.at, end)}
        found: list[int] = []
        behind = self.at
        for turn in self.turns[self.turn : self.tried]:
            if turn.kind == "other":
                place = next((i for i in range(behind, end) if keys[i] == turn.key), None)
                if place is None:
                    break
                behind = place + 1
            found.append(behind)
        return found

    def _as_long_as_held(self, turns: Sequence[_Turn]) -> int:
        """How many of the turns have as many characters of words as what is held; 0 if none have."""
        left = len(" ".join(one.text for one in self._region())) + 1
        for number, turn in enumerate(turns):
            if turn.kind == "assistant":
                if left <= 0:
                    return number if left == 0 else 0
                left -= len(turn.key) + 1
        return 0

    def _is_user(self, place: int) -> bool:
        return self.held[place].message.get("role") == "user"

    def _words(self, said: Sequence[JsonObject], behind: int = 0) -> bool:
        """Match what the assistant said. Messages before `behind` are matched too."""
        words = self._region()
        if not words or not self._fits(words, "\n".join(text_of(one) for one in said)):
            return False
        self.at = max(words[-1].place + 1, behind)
        # What functions and operators added behind an answer was there before what comes next.
        seen = (place for place in range(self.at, len(self.held)) if _is_seen(self.held[place].message))
        self.kept = next(seen, len(self.held))
        return True

    def _fits(self, words: Sequence[_Words], sent: str) -> bool:
        """Whether the text that was sent is what these messages say, but for cuts, which are noted."""
        changed: dict[int, JsonObject | None] = {}
        if_all_is_of_one: dict[int, JsonObject | None] | None = None
        begins = [found.start() for found in _WORD.finditer(sent)]
        taken = 0
        for number, one in enumerate(words):
            rest = sent[begins[taken] :] if taken < len(begins) else ""
            left = _squeezed(rest)
            may_be_last = all(later.may_be_missing for later in words[number + 1 :])
            if left == one.text or left.startswith(f"{one.text} "):
                taken += one.text.count(" ") + 1
                if one.is_cut and may_be_last:
                    if_all_is_of_one = {**changed, one.place: self._cut(one, rest)}
            elif left and one.is_cut and (one.text.startswith(left) or left.startswith(one.text)):
                taken = len(begins)
                changed[one.place] = self._cut(one, rest)
            elif left and one.is_cut:
                changed[one.place] = None
            elif not (may_be_last and one.may_be_missing):
                taken = -1
                break
            else:
                break
        if taken != len(begins):
            if if_all_is_of_one is None:
                return False
            changed = if_all_is_of_one
        self.changed |= changed
        return True

    def _cut(self, one: _Words, text: str) -> JsonObject:
        return {**self.held[one.place].message, "content": text.strip()}

    def _region(self) -> list[_Words]:
        """What the assistant says from here until a user speaks."""
        found: list[_Words] = []
        reported = False
        for place in range(self.at, len(self.held)):
            one = self.held[place]
            if one.message.get("role") == "user":
                break
            payload = async_tool_messages.parse_message(one.message)
            reported = reported or (payload is not None and payload.kind != "started")
            if _is_words(one.message) and (text := _squeezed(text_of(one.message))):
                found.append(_Words(place, text, one.is_cut, reported))
        return found


@dataclass(frozen=True, slots=True)
class _Words:
    """A message with words of the assistant."""

    place: int
    text: str
    is_cut: bool
    is_report: bool
    """A background call reported before it."""

    @property
    def may_be_missing(self) -> bool:
        return self.is_cut or self.is_report


def _is_words(message: JsonObject) -> bool:
    return message.get("role") == "assistant" and not message.get("tool_calls")


def _is_seen(message: JsonObject) -> bool:
    return message.get("role") == "user" or (_is_words(message) and bool(_squeezed(text_of(message))))


def _key(message: JsonObject) -> Any:
    """What two messages have in common that are the same to a reader."""
    named = {
        name: value
        for name, value in message.items()
        if name in ("role", "name", "tool_calls", "tool_call_id", "llm", "message") and value is not None
    }
    return _canonical({**named, "content": list(_comparable(message.get("content")))})


def _comparable(content: Any) -> Iterator[Any]:
    """The parts of a content; neighbouring texts as one."""
    texts: list[str] = []
    for part in _parts(content):
        text = _text_of_part(part)
        if text is not None:
            texts.append(text)
            continue
        if squeezed := _squeezed(" ".join(texts)):
            yield squeezed
        texts = []
        yield part
    if squeezed := _squeezed(" ".join(texts)):
        yield squeezed


def _parts(content: Any) -> Sequence[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list | tuple) else ()


def _text_of_part(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
    return None


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=list)
