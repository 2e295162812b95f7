"""The function-call service: an application's functions, run for all conversations.

An application needs `FunctionRegistry`, `FunctionCallParams`, `tool_options` and `FunctionService`. To read how a call
is run, start with `calling`.
"""

from frameledger_services.functions.call_frames import FUNCTION_FAILED
from frameledger_services.functions.options import tool_options
from frameledger_services.functions.params import (
    FunctionCallParams,
    FunctionCallResultCallback,
    ResultRefusedError,
)
from frameledger_services.functions.registry import (
    DirectFunction,
    FunctionCallRegistryItem,
    FunctionRegistry,
    ReservedNameError,
    UnknownFunctionError,
)
from frameledger_services.functions.schemas import SchemaError, schema_of
from frameledger_services.functions.service import FunctionService, NotRunningError

__all__ = [
    "FUNCTION_FAILED",
    "DirectFunction",
    "FunctionCallParams",
    "FunctionCallRegistryItem",
    "FunctionCallResultCallback",
    "FunctionRegistry",
    "FunctionService",
    "NotRunningError",
    "ReservedNameError",
    "ResultRefusedError",
    "SchemaError",
    "UnknownFunctionError",
    "schema_of",
    "tool_options",
]
