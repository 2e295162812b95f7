"""One type for each kind of id and number, so that the type checker keeps them apart."""

from typing import NewType

ContextId = NewType("ContextId", str)
"""A conversation; the key of its records on the log. 1 to 255 bytes of UTF-8 without NUL."""

FrameId = NewType("FrameId", str)
"""A frame within its context: the publisher's own id, or one derived from the frame's position on the log."""

RunId = NewType("RunId", str)
"""One inference of a context, over all its attempts."""

ToolCallId = NewType("ToolCallId", str)
"""A call, with the provider's id. The id may be used again in a context once the call has settled."""

GroupId = NewType("GroupId", str)
"""Calls whose results are awaited together."""

Version = NewType("Version", int)
"""The number of stored frames of a context: 1 after the first."""

Position = NewType("Position", int)
"""The position of a message within its era; assigned once, never reused or moved."""

Era = NewType("Era", int)
"""The number of a history of a context: each update of the whole history begins the next one."""

Attempt = NewType("Attempt", int)
"""The number of an attempt at a run or a call, from 1."""
