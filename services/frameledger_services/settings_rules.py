"""Rules across settings: invalid combinations."""

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from frameledger_services.settings import PREFIX, Settings


def contradictions(settings: Settings) -> list[str]:
    """Returns a sentence for each combination of settings that contradicts itself."""
    problems = []
    if settings.database_url is not None:
        problems += _not_an_address(settings.database_url.get_secret_value())
    if settings.work_heartbeat_secs > settings.work_lease_secs / 2:
        problems.append(
            f"{PREFIX}WORK_HEARTBEAT_SECS is more than half of {PREFIX}WORK_LEASE_SECS: one lost heartbeat would "
            "expire the lease."
        )
    if settings.kafka_security_protocol.startswith("SASL"):
        if settings.kafka_sasl_mechanism == "OAUTHBEARER":
            needed = ["kafka_sasl_oauth_token_path"]
        elif settings.kafka_sasl_mechanism == "GSSAPI":
            needed = []
        else:
            needed = ["kafka_sasl_username", "kafka_sasl_password"]
        problems += [
            f"{PREFIX}{name.upper()} is required for SASL with {settings.kafka_sasl_mechanism}."
            for name in needed
            if getattr(settings, name) is None
        ]
    if settings.database_password is not None and settings.database_url is None:
        problems.append(
            f"{PREFIX}DATABASE_PASSWORD is set without {PREFIX}DATABASE_URL: set the address of your database too."
        )
    if settings.kafka_security_protocol != "PLAINTEXT" and settings.kafka_bootstrap_servers is None:
        problems.append(
            f"{PREFIX}KAFKA_SECURITY_PROTOCOL is set without {PREFIX}KAFKA_BOOTSTRAP_SERVERS: set the addresses of "
            "your brokers too."
        )
    return problems


def _not_an_address(address: str) -> list[str]:
    """Returns what is wrong with a libpq address, at most one sentence. libpq's own message would contain a part of the
    password: it takes the part after an `@` for a host, and the part before a `/` for a port."""
    is_url = "://" in address
    try:
        ports = str(conninfo_to_dict(address).get("port") or "").split(",")
        is_cut = is_url and (
            address.split("://")[1].partition("/")[0].count("@") > 1
            or not all(one.isdigit() for one in ports if one)
        )
        if not is_cut:
            return []
    except ProgrammingError:
        pass
    escape = (
        f" In a user name or password, escape @ as %40, / as %2F and % as %25; or set {PREFIX}DATABASE_PASSWORD."
        if is_url
        else ""
    )
    return [
        f"{PREFIX}DATABASE_URL is not a libpq connection string such as postgresql://USER@HOST:5432/NAME.{escape}"
    ]
