"""One type for each kind of id and number, so that the type checker keeps them apart."""

from typing import NewType

ContextId = NewType("ContextId", str)
"""A conversation; the key of its records on the log. 1 to 255 bytes of UTF-8 without NUL."""

FrameId = NewType("FrameId", str)
"""A frame within its context: the publisher's own id, or one derived from the frame's place on the log."""

RunId = NewType("RunId", str)
"""One inference of a context, over all its attempts."""

ToolCallId = NewType("ToolCallId", str)
"""A call as the provider named it. May be used again in a context once the call has settled."""

GroupId = NewType("GroupId", str)
"""Calls whose results are awaited together."""

Version = NewType("Version", int)
"""How many frames of a context are stored: 1 after the first."""

Position = NewType("Position", int)
"""The place of a message within its era; given once, never reused or moved."""

Era = NewType("Era", int)
"""Counts the histories of a context: each update of the whole history begins the next."""

Attempt = NewType("Attempt", int)
"""Which attempt at a run or a call this is, from 1."""
