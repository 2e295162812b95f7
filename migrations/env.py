"""Where Alembic comes in: it runs the versions on the connection that the caller opened, and opens none itself.

`frameledger migrate` is the caller. A connection is in the transaction that the caller will end.
"""

from alembic import context

# Not Alembic's default, so that the database may be shared with another program that uses Alembic.
VERSION_TABLE = "frameledger_schema"


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
    )
    context.run_migrations()


run()
