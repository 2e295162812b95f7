"""Price lists of models, which the user provides. The package has none, because prices change often.

    ["gpt-5-mini"]          or {"gpt-5-mini": {"input": 0.25, "output": 2.0, "cache_read": 0.025}}
    input = 0.25
    output = 2.0
    cache_read = 0.025
    cache_write = 0.25

Each is the price of a million tokens, in any one currency. A key is a model, or `provider/model` for a price that only
one provider asks. `cache_read` and `cache_write` are equal to `input` if they are not given.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from frameledger.errors import RefusedError
from frameledger_services.forks.answer import UsedTokens

PER = 1_000_000

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PricesError(RefusedError):
    """A file cannot be read, or is not a price list. The message names the place.

    Remedy: Correct the file there; `frameledger rerun --help` shows the form.
    """


class Price(BaseModel):
    """Prices of a million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None

    def of(self, tokens: UsedTokens) -> float | None:
        """Returns the cost of these tokens; None if the number of input or output tokens is unknown."""
        if tokens.input is None or tokens.output is None:
            return None
        read, written = tokens.cache_read or 0, tokens.cache_write or 0
        cost = (tokens.input - read - written) * self.input + tokens.output * self.output
        cost += read * (self.input if self.cache_read is None else self.cache_read)
        cost += written * (self.input if self.cache_write is None else self.cache_write)
        return cost / PER


class Prices:
    """A price list."""

    def __init__(self, prices: dict[str, Price]) -> None:
        self._prices = prices

    def of(self, provider: str | None, model: str | None, tokens: UsedTokens) -> float | None:
        """Returns the cost of a model's answer; None if the model is not in the list, or tokens are unknown."""
        price = self._price(provider, model)
        return None if price is None else price.of(tokens)

    def has(self, provider: str | None, model: str | None) -> bool:
        """Returns whether the list has the model."""
        return self._price(provider, model) is not None

    def _price(self, provider: str | None, model: str | None) -> Price | None:
        return self._prices.get(f"{provider}/{model}") or self._prices.get(model or "")


def read(path: Path) -> Prices:
    """Returns the price list in a TOML file (`.toml`) or a JSON one (any other name). Raises `PricesError`."""
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        return Prices(_prices.validate_python(content))
    except OSError as error:
        raise PricesError(f"The price list {path} cannot be read: {error.strerror}.{_FORM}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise PricesError(f"{path} is not a price list: {where}: {first['msg']}.{_FORM}") from None
    except ValueError as error:
        raise PricesError(f"{path} is not a price list: {error}.{_FORM}") from None
    except RecursionError:
        raise PricesError(f"{path} is not a price list: it is nested too deeply.{_FORM}") from None


_prices = TypeAdapter(dict[str, Price])

_FORM = " `frameledger rerun --help` shows the form of one."
