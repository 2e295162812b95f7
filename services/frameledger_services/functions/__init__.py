"""The function-call service: an application's functions, run for all conversations.

An application needs `FunctionRegistry`, `FunctionCallParams`, `tool_options` and `FunctionService`. To read how a call
runs, start with `call_lifecycle`.
"""

from frameledger_services import extras

with extras.needed("services"):
    from frameledger_services.functions.announcing import CallsRefusedError
    from frameledger_services.functions.call_frames import FUNCTION_FAILED
    from frameledger_services.functions.options import tool_options
    from frameledger_services.functions.params import (
        FunctionCallParams,
        FunctionCallResultCallback,
        ResultRefusedError,
    )
    from frameledger_services.functions.registry import (
        FunctionRegistry,
        ReservedNameError,
        UnknownFunctionError,
    )
    from frameledger_services.functions.registry_item import DirectFunction, FunctionCallRegistryItem
    from frameledger_services.functions.runtime import NotRunningError
    from frameledger_services.functions.schemas import FunctionSchemaError, schema_of
    from frameledger_services.functions.service import FunctionService

__all__ = [
    "FUNCTION_FAILED",
    "CallsRefusedError",
    "DirectFunction",
    "FunctionCallParams",
    "FunctionCallRegistryItem",
    "FunctionCallResultCallback",
    "FunctionRegistry",
    "FunctionSchemaError",
    "FunctionService",
    "NotRunningError",
    "ReservedNameError",
    "ResultRefusedError",
    "UnknownFunctionError",
    "schema_of",
    "tool_options",
]
