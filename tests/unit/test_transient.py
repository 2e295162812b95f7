"""Transient errors are classified in one module, as the broker and the database define them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from aiokafka import errors as kafka
from psycopg import errors

from frameledger_services import transient
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.publish_errors import RecordRefusedError

SERVICES = Path(__file__).resolve().parents[2] / "services" / "frameledger_services"


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("the connection is closed"),
        errors.AdminShutdown(),
        errors.TooManyConnections(),
        errors.SerializationFailure(),
        errors.LockNotAvailable(),
        errors.ReadOnlySqlTransaction(),
        errors.IdleInTransactionSessionTimeout(),
        errors.TransactionTimeout(),
        TimeoutError(),
        kafka.NodeNotReadyError(),
        kafka.TopicAuthorizationFailedError(),
        BrokerError("no answer"),
        ExceptionGroup("both", [errors.CannotConnectNow(), ExceptionGroup("in it", [kafka.KafkaError()])]),
    ],
    ids=repr,
)
def test_waiting_and_a_new_connection_mend_it(error):
    assert transient.is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.UndefinedTable(),
        errors.InsufficientPrivilege(),
        errors.NotNullViolation(),
        ValueError(),
        ExceptionGroup("one of them", [errors.CannotConnectNow(), KeyError("ctx")]),
    ],
    ids=repr,
)
def test_waiting_does_not_mend_it(error):
    assert not transient.is_transient(error)


def test_more_kinds_may_be_transient_to_one_who_asks():
    assert not transient.is_transient(KeyError())
    assert transient.is_transient(ExceptionGroup("both", [KeyError(), TimeoutError()]), KeyError)


@pytest.mark.parametrize(
    "kind", [errors.UniqueViolation, errors.InvalidTextRepresentation, errors.ProgramLimitExceeded]
)
def test_the_database_refuses_these_data_again(kind):
    assert transient.is_refused_data(kind())


@pytest.mark.parametrize("kind", [errors.DiskFull, errors.UndefinedTable, psycopg.OperationalError])
def test_it_is_not_for_the_data_that_the_database_refuses(kind):
    assert not transient.is_refused_data(kind())


def test_a_record_may_be_sent_again_after_whatever_kafka_calls_retriable():
    kinds = [
        kind for kind in vars(kafka).values() if isinstance(kind, type) and getattr(kind, "retriable", False)
    ]
    assert len(kinds) > 15
    assert all(transient.is_retriable(kind()) for kind in kinds)


@pytest.mark.parametrize("kind", [kafka.OutOfOrderSequenceNumber, kafka.ProducerFenced, kafka.KafkaError])
def test_a_record_may_be_sent_again_by_another_producer(kind):
    assert transient.is_retriable(kind())


@pytest.mark.parametrize(
    "error",
    [
        kafka.MessageSizeTooLargeError(),
        kafka.TopicAuthorizationFailedError(),
        kafka.InvalidTopicError(),
        RecordRefusedError("too large", [None]),
        ValueError(),
    ],
    ids=repr,
)
def test_a_record_is_refused_for_what_it_is(error):
    assert not transient.is_retriable(error)


@pytest.mark.parametrize("code", [3, 5, 6, 9, 13, 56, 74, 75, 78, 100])
def test_a_code_of_a_broker_that_does_not_lead_is_retriable(code):
    assert transient.is_retriable_code(code)


@pytest.mark.parametrize("code", [0, 1, 2, 10, 29, -1])
def test_a_code_that_asking_again_does_not_change_is_not(code):
    assert not transient.is_retriable_code(code)


def test_no_other_module_keeps_a_list_of_them():
    found = [wrong for name, source in modules() for wrong in lists(name, source)]
    assert found == [], "ask frameledger_services.transient"


@pytest.mark.parametrize(
    "source",
    [
        "AWAY = (psycopg.OperationalError, TimeoutError, psycopg.errors.ReadOnlySqlTransaction)",
        "LATER = frozenset((kafka_errors.NotLeaderForPartitionError.errno, kafka_errors.KafkaStorageError.errno))",
        "def f():\n    try: ...\n    except (KafkaError, BrokerError): ...",
        "isinstance(error, KafkaError | PublishError)",
        "again = error.retriable",
        "refused = error.sqlstate[:2] == '22'",
    ],
)
def test_a_list_of_them_is_found(source):
    assert lists("somewhere", source)


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    try: ...\n    except (psycopg.Error, SchemaError): ...",
        "def f():\n    try: ...\n    except (BrokerError, SettingsError): ...",
        "said = error.sqlstate is not None",
        "from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError",
    ],
)
def test_one_error_alone_is_no_list_of_transient_errors(source):
    assert lists("somewhere", source) == []


ELSEWHERE = {
    "frameledger_services.event_log.topic_request": "what of a topic's description says that it is not there",
    "frameledger_services.store.migration": "what waiting for another's lock ends with",
}

KINDS = {"KafkaError", "EventLogError", "BrokerError", "PublishError", "OperationalError", "TransientError"}
KINDS |= {
    name
    for name, kind in vars(kafka).items()
    if isinstance(kind, type) and issubclass(kind, kafka.KafkaError)
}
KINDS |= {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and getattr(kind, "sqlstate", None)
}
KINDS -= {"Error"}
RELEVANT = re.compile(rf"\b(?:retriable|sqlstate|{'|'.join(sorted(KINDS))})\b")


def modules() -> Iterator[tuple[str, str]]:
    root = SERVICES.parent
    for path in sorted(SERVICES.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        if name not in ELSEWHERE and name != "frameledger_services.transient" and ".bench." not in name:
            yield name, path.read_text(encoding="utf-8")


def lists(module: str, source: str) -> list[str]:
    """Yields the places where a module lists several error classes or inspects an error itself."""
    wrong = []
    # To parse them all takes a second.
    for node in ast.walk(ast.parse(source)) if RELEVANT.search(source) else ():
        place = f"{module}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                if sum(_is_kind(part) for part in parts) > 1:
                    wrong.append(f"{place} lists errors")
            case ast.BinOp(left=left, op=ast.BitOr(), right=right) if _is_kind(left) and _is_kind(right):
                wrong.append(f"{place} lists errors")
            case ast.Attribute(attr="retriable"):
                wrong.append(f"{place} asks an error of Kafka's whether it is retriable")
            case ast.Subscript(value=ast.Attribute(attr="sqlstate")):
                wrong.append(f"{place} looks into an SQLSTATE")
    return wrong


def _is_kind(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in KINDS or (node.attr == "errno" and _is_kind(node.value))
    return isinstance(node, ast.Name) and node.id in KINDS
