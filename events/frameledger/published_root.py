"""The value of a record on the topic of the roots: a root over all conversations, for readers in any language."""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field


class PublishedRoot(BaseModel):
    """A root over the heads of all conversations, and when it was computed. Later releases may add to it."""

    root: Annotated[str, Field(description="The root of the Merkle tree, SHA-256 in hexadecimal digits.")]
    leaves: Annotated[
        int, Field(description="Number of its leaves: conversations, and receipts of erased ones.")
    ]
    at: Annotated[AwareDatetime, Field(description="When, by the database's clock, in ISO 8601.")]
    release: Annotated[str, Field(description="The release of Frameledger that computed it.")]
