"""Schemas of functions, derived from their signatures and docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError

from frameledger.errors import RefusedError
from frameledger.tools import FunctionSchema
from frameledger_services import logs
from frameledger_services.functions import docstrings
from frameledger_services.functions.argument_model import model_of
from frameledger_services.functions.arguments import ArgumentsError
from frameledger_services.functions.parameter_fields import field_of
from frameledger_services.functions.params import FunctionCallParams
from frameledger_services.functions.plain_schemas import properties_of

PARAMS = "params"
"""The usual name of the parameter that receives the `FunctionCallParams`. Without a type it could also be an argument
of the model, so it needs one."""

_OF_METHODS = frozenset({"self", "cls"})

MAX_CHARACTERS = 300
"""The maximum length of the text of a mistake in the arguments, and of its location: the model chooses the keys of a
dictionary."""

_log = logs.get_logger("functions")


class FunctionSchemaError(RefusedError, TypeError):
    """No schema can be derived from a function. The message names the function and the reason.

    Remedy: Annotate its parameters with types that have a JSON Schema, as the message says.
    """


_NO_SCHEMA = (
    PydanticUserError,
    PydanticSerializationError,
    SchemaError,
    ImportError,
    re.error,
)
"""The errors for a type without a schema: ImportError if it needs a package, as for an e-mail address."""


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The schema of a function, its parameters as a pydantic model, and the parameter that receives the params."""

    schema: FunctionSchema
    arguments: type[BaseModel]
    params_name: str | None
    """The parameter that receives the `FunctionCallParams`; None if there is none."""

    always_passed: frozenset[str] = frozenset()
    """The fields of `arguments` whose parameters have no default of their own: a default in a `Field` is passed too."""

    def converted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments converted to the types of the signature: enums, models, dates. Arguments that were not
        given are omitted, unless their default is in a `Field`. Raises ArgumentsError if they do not match the
        signature."""
        try:
            validated = self._validated(arguments)
        except ValidationError as error:
            raise ArgumentsError(_words(error)) from error
        except BaseException as error:
            # Raised by a validator of the application's own types, since nothing is awaited here. This includes
            # SystemExit and CancelledError, which would end the service. Its message is not for the model.
            _log.exception("call.arguments_unreadable", function_name=self.schema.name)
            raise ArgumentsError(
                "the arguments cannot be converted to the types of its parameters"
            ) from error
        passed = validated.model_fields_set | self.always_passed
        values = {name: getattr(validated, name) for name in passed}
        fields = type(validated).model_fields
        return {(fields[name].alias or name): value for name, value in values.items()}

    def _validated(self, arguments: Mapping[str, Any]) -> BaseModel:
        try:
            # Not as JSON first: that converts every text with the form of a date to a date, even for `date | str`.
            return self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            try:
                # Strict types accept no text as a date, except in JSON, where dates are text.
                return self.arguments.model_validate_json(json.dumps(dict(arguments)))
            except ValidationError as of_json:
                # Pydantic cannot read a lone surrogate from JSON. All other mistakes are reported in terms of JSON.
                raise (error if _is_unreadable(of_json) else of_json) from None


def schema_of(function: Callable[..., Any]) -> FunctionSchema:
    """Returns the schema of a function: its name, the text of its docstring, and its parameters by annotation.

    Docstrings in Google, NumPy and reST style describe the parameters; `Annotated[..., Field(...)]` takes precedence
    over them, and a plain text in `Annotated` describes what they do not. A parameter whose default is None accepts
    null, whatever its type. A parameter of type `FunctionCallParams`, or of a union with it, is left out. A parameter
    named `params` needs a type. Raises FunctionSchemaError.
    """
    return signature_of(function).schema


def signature_of(function: Callable[..., Any]) -> FunctionSignature:
    """Returns the signature of a function, from its annotations and docstring. Raises FunctionSchemaError."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise FunctionSchemaError(f"{function!r} has no name that a model could call; define it with `def`.")
    inner = _inner(function)
    hints = _hints(inner, name)
    # A `partial` without a docstring of its own has that of its class.
    has_its_own = not isinstance(function, partial) or "__doc__" in vars(function)
    documented = docstrings.read(inspect.getdoc(function if has_its_own else inner) or "")
    params_name: str | None = None
    fields: dict[str, Any] = {}
    always_passed: set[str] = set()
    for parameter in _signature(function, name).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise FunctionSchemaError(
                f"{name}: the parameter {parameter.name!r} cannot be given by name, and a model gives all by name. "
                "List the parameters one by one."
            )
        hint = hints.get(parameter.name, _declared(parameter))
        if hint is None and parameter.name in _OF_METHODS and not fields and params_name is None:
            raise FunctionSchemaError(
                f"{name} is a method: its {parameter.name!r} would be an argument of the model. Register the method of "
                "an object, such as `shop.price`, and not that of its class."
            )
        if _accepts_params(hint):
            if params_name is not None:
                raise FunctionSchemaError(
                    f"{name}: {params_name!r} and {parameter.name!r} both have the type `FunctionCallParams`; keep one."
                )
            params_name = parameter.name
        elif hint is None and parameter.name == PARAMS:
            raise FunctionSchemaError(
                f"{name}: {PARAMS!r} has no type. Write `{PARAMS}: FunctionCallParams` to get the parameters of the "
                f"call. If it is an argument that the model gives, annotate its type, such as `{PARAMS}: str`."
            )
        else:
            # A parameter may begin with an underscore or have the name of a pydantic method, and a field may not.
            field = f"p{len(fields)}"
            fields[field] = field_of(parameter, hint, documented.parameters.get(parameter.name))
            if parameter.default is parameter.empty or isinstance(parameter.default, FieldInfo):
                always_passed.add(field)
    model, properties, required = _described(name, fields)
    schema = FunctionSchema(name, documented.description, properties, required)
    return FunctionSignature(schema, model, params_name, frozenset(always_passed))


def _described(
    name: str, fields: Mapping[str, Any]
) -> tuple[type[BaseModel], dict[str, Any], tuple[str, ...]]:
    """Returns the parameters as a model, their schemas by name, and the names of the required ones."""
    try:
        model = model_of(name, fields)
        return model, *properties_of(model)
    except _NO_SCHEMA as error:
        raise FunctionSchemaError(
            f"{name}: {_parameter_without_schema(name, fields)}{_reason(error)}"
        ) from error


def _parameter_without_schema(name: str, fields: Mapping[str, Any]) -> str:
    """Returns the beginning of a message that names the parameter without a schema, since pydantic does not name it."""
    for field, (annotation, info) in fields.items():
        try:
            properties_of(model_of(name, {field: (annotation, info)}))
        except _NO_SCHEMA:
            return f"the parameter {info.alias!r}: "
    return ""


def _reason(error: Exception) -> str:
    match error:
        case PydanticSchemaGenerationError() | PydanticInvalidForJsonSchema():
            # The rest describes how to continue without a schema.
            first = error.message.partition(". ")[0].partition("\n")[0]
            return (
                f"{first}. A model gives values of JSON: text, numbers, lists, dataclasses, pydantic models. What the "
                "application gives comes with a parameter of type `FunctionCallParams`, as its `app_resources`."
            )
        case PydanticUserError():
            return error.message
    return str(error)


def _accepts_params(hint: Any) -> bool:
    """Returns whether this type is `FunctionCallParams`, or a union with it."""
    if hint is FunctionCallParams:
        return True
    return get_origin(hint) in (Union, UnionType, Annotated) and any(
        _accepts_params(one) for one in get_args(hint)
    )


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that a `partial` calls, which has its annotations."""
    while isinstance(function, partial):
        function = function.func
    return function


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    """Returns the signature; for a `partial` without the arguments that it already has."""
    given: Mapping[str, Any] = {}
    if isinstance(function, partial):
        given = function.keywords
        # `update_wrapper` makes it look as if it had the signature of its function.
        function = partial(function.func, *function.args, **given)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise FunctionSchemaError(f"{name}: its parameters cannot be read: {error}") from error
    return signature.replace(
        parameters=[one for one in signature.parameters.values() if one.name not in given]
    )


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise FunctionSchemaError(
            f"{name}: an annotation uses {error.name!r}, which is not defined at run time. Import it outside of "
            "`if TYPE_CHECKING`."
        ) from error
    except Exception as error:
        # An annotation may be any text, and is evaluated.
        raise FunctionSchemaError(f"{name}: an annotation cannot be read: {error}") from error


def _declared(parameter: inspect.Parameter) -> Any:
    """Returns the annotation in the signature: a decorator may declare another one than its function has."""
    return None if parameter.annotation is parameter.empty else parameter.annotation


def _is_unreadable(error: ValidationError) -> bool:
    return error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid"


def _words(error: ValidationError) -> str:
    """Returns the mistakes in the arguments, without their values and without most of their keys, which may be long."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))[:MAX_CHARACTERS] or 'the arguments'}: {one['msg'][:MAX_CHARACTERS]}"
        for one in error.errors(include_url=False, include_input=False)[:10]
    )
