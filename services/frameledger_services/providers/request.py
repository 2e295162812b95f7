"""`Request`: what one inference sends, complete and before it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model. Equal contexts, settings and instructions give equal bytes, in every process."""

    provider: str
    model: str
    body: Mapping[str, Any]
    """The JSON object for the provider."""

    content: bytes
    """`body` as UTF-8 JSON: exactly what goes over the wire."""

    builtin_tools: frozenset[str] = field(default=frozenset())
    """Names of the offered functions that the function service serves itself, such as `cancel_<name>`."""

    @classmethod
    def of(
        cls, provider: str, model: str, body: Mapping[str, Any], builtin_tools: frozenset[str] = frozenset()
    ) -> Self:
        """The request with this body. Keys keep their order, since providers cache by the bytes of the beginning."""
        return cls(provider, model, body, encoded(body), builtin_tools)

    @property
    def sha256(self) -> str:
        """The hash of `content` in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def encoded(value: Any) -> bytes:
    """Compact JSON in UTF-8. Half of a surrogate pair, which has no UTF-8, is written as its escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="backslashreplace")
