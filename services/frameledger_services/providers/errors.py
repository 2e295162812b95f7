"""Errors of providers, by what the caller has to do.

No message contains a secret: addresses and keys are left out where an error is created.
"""

from __future__ import annotations

from frameledger import errors


class ProviderError(errors.FrameledgerError):
    """A provider did not answer a request. `code` is for programs, the message for people; both may be published.

    Remedy: See the remedies of its subclasses.
    """

    code = "provider_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class ProviderUnavailableError(ProviderError, errors.TransientError):
    """The provider is temporarily unavailable: it is overloaded, limits the rate, or failed internally.

    Remedy: Retry after `retry_after` seconds, if given, or with a backoff.
    """

    code = "provider_unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class ConnectionLostError(ProviderUnavailableError):
    """The stream of a provider broke off, or no connection could be made.

    Remedy: Retry. If it never connects, check the provider's address.
    """

    code = "connection_lost"


class WebsocketReconnectedError(ConnectionLostError):
    """The websocket to a provider was lost and reconnected. The server has lost the state of the inference.

    Remedy: Start the inference again.
    """

    code = "websocket_reconnected"


class RefusedContextError(ProviderError, errors.RefusedError):
    """The provider rejected this request (status 400) and would reject it again.

    Remedy: Change the context or its settings as the message says.
    """

    code = "context_refused"


class ProviderRefusedError(ProviderError, errors.ConfigurationError):
    """The provider rejected the key, the account, the address or the model (status 401, 402, 403 or 404).

    Remedy: Set a valid key, address or model.
    """

    code = "provider_refused"


class CompletionTimeoutError(ProviderError, errors.TransientError):
    """The provider sent nothing for the completion timeout, or nothing but signs of life for half an hour.

    Remedy: Retry, or raise `FRAMELEDGER_INFERENCE_COMPLETION_TIMEOUT_SECS`.
    """

    code = "completion_timeout"


class IncompleteCallError(ProviderError, errors.RefusedError):
    """The answer ended in the middle of a function call, for instance at the token limit. No function is called.

    Remedy: Raise the token limit, or ask for less.
    """

    code = "incomplete_call"


class UnmappableError(ProviderError, errors.RefusedError):
    """The request contains something that this provider does not support. The message names it. Nothing was sent.

    Remedy: Remove it from the context or the settings, or use another provider.
    """

    code = "unmappable"

    def __init__(self, provider: str, what: str) -> None:
        """`what` names the unsupported thing, for instance `the setting top_k`."""
        super().__init__(f"The provider {provider!r} does not support this: {what}.")
        self.provider = provider
        self.what = what
