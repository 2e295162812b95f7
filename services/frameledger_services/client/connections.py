"""The client's connections to the database: the store's, which only read."""

from frameledger_services.store.connections import Connections, DatabaseError, connect

__all__ = ["Connections", "DatabaseError", "connect"]
