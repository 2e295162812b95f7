"""Alembic's environment: runs the migrations on the connection that the caller opened, and opens none itself.

`frameledger migrate` is the caller. The connection is in a transaction that the caller ends.
"""

from typing import Any

from alembic import context
from sqlalchemy import Text, column, table

# Not Alembic's default, so that the database may be shared with another program that uses Alembic.
VERSION_TABLE = "frameledger_schema"


_SCHEMA = table(VERSION_TABLE, column("compatible_from", Text))


def _say_who_works_with_it(*, ctx: Any, step: Any, **_: Any) -> None:
    """Store, after each migration, the oldest release that also works with the tables. Before 0006 there was none."""
    compatible_from = getattr(step.up_revision.module, "compatible_from", None)
    if compatible_from is not None:
        ctx.execute(_SCHEMA.update().values(compatible_from=compatible_from))


def run() -> None:
    attributes = context.config.attributes
    if context.is_offline_mode():
        context.configure(
            dialect_name="postgresql",
            version_table=VERSION_TABLE,
            # Any other style would double the percent signs.
            dialect_opts={"paramstyle": "named"},
            literal_binds=True,
            output_buffer=attributes["output"],
            on_version_apply=_say_who_works_with_it,
        )
        with context.begin_transaction():
            context.run_migrations()
        return
    if "connection" not in attributes:
        raise SystemExit("Migrations are run by `frameledger migrate`, which knows the database.")
    context.configure(
        connection=attributes["connection"],
        version_table=VERSION_TABLE,
        target_metadata=attributes.get("target_metadata"),
        transactional_ddl=True,
        on_version_apply=_say_who_works_with_it,
    )
    context.run_migrations()


run()
