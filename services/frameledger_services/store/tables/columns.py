"""Common parts of the declarations of tables: the metadata, types of columns, and columns of several tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, DateTime, Integer, MetaData, Text, text
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.types import TypeEngine

metadata = MetaData()

ID = Text(collation="C")
JSON_TEXT = JSON()
TIME = DateTime(timezone=True)


def column(
    name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str, default: str | None = None
) -> Column[Any]:
    """Returns a column that always has a value."""
    return Column(
        name, kind, nullable=False, server_default=None if default is None else text(default), comment=comment
    )


def optional(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str) -> Column[Any]:
    """Returns a column that may be null."""
    return Column(name, kind, nullable=True, comment=comment)


def context_id(comment: str = "The conversation.") -> Column[Any]:
    return column("context_id", ID, comment)


def generation() -> Column[Any]:
    return column(
        "generation", Integer, "The generation of the topic that the offset belongs to; see topics.", "1"
    )


HEADERS = 'The headers in order: [[name, value], ...]. A value is text, null, or {"base64": ...} if it is not UTF-8.'
