"""PyIceberg's SQL catalog with a time-out on every statement.

PyIceberg hands the driver nothing but the URI, and a database that accepts and falls silent would hold a publisher
thread for ever. Every connection is given limits here, the first one too:

| driver | until a connection stands | an answer |
|---|---|---|
| SQLite | – | waiting for another writer's lock; a write-ahead log lets readers go on meanwhile |
| pg8000 | as an answer | every read of the connection, whatever the server does |
| psycopg, psycopg2 | connecting | the server ends the statement; a network that is gone ends the connection |

What the URI's query says wins. Other databases are used as PyIceberg opens them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import ExceptionContext, event
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from iceberg_catalog.commit.named_snapshots import require_unheld
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.errors import DAMAGE, damage_of
from iceberg_catalog.limits import SQLITE_BUSY_TIMEOUT_MS


class TimedSqlCatalog(SqlCatalog):
    """The catalog in a database; safe to open from many bridges at once."""

    def __init__(self, name: str, timeouts: Timeouts, **properties: Any) -> None:
        # The parent connects while it is being made.
        self._timeouts = timeouts
        # A database that was restarted leaves dead connections behind: they are found before they cost a commit.
        super().__init__(name, **{"pool_pre_ping": "true", **properties})

    def _init_catalog(self) -> None:
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _tune_sqlite)
        elif self.engine.dialect.name == "postgresql":
            event.listen(self.engine, "do_connect", self._limit_postgres)
            event.listen(self.engine, "handle_error", _give_up_connection)
        # Of two bridges that find an empty database at once, one is refused a table the other has made: there are two.
        refused = OperationalError if self.engine.dialect.name == "sqlite" else ProgrammingError
        for _ in range(2):
            with suppress(IntegrityError, refused):
                super()._init_catalog()
                return
        super()._init_catalog()

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is not None:
            require_unheld(current_table.metadata, updates)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        # A change without a snapshot is as of this machine's clock: Java's readers refuse one from before the last.
        if current_table is not None and staged.metadata.last_updated_ms < current_table.metadata.last_updated_ms:
            later = {"last_updated_ms": current_table.metadata.last_updated_ms + 1}
            staged.metadata = staged.metadata.model_copy(update=later)
        return staged

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        # What is raised says nothing of the file, and nobody else knows the entry's location.
        try:
            return super()._convert_orm_to_iceberg(orm_table)
        except DAMAGE as error:
            raise ValueError(f"{orm_table.metadata_location}: {damage_of(error)}") from error

    def _limit_postgres(self, _dialect: object, _record: object, _arguments: Any, parameters: dict[str, Any]) -> None:
        connect_s, read_s = self._timeouts.seconds()
        if self.engine.dialect.driver == "pg8000":
            parameters.setdefault("timeout", read_s)
            return
        # By the names of libpq; it takes whole seconds, and one as two.
        parameters.setdefault("connect_timeout", max(2, math.ceil(connect_s)))
        parameters.setdefault("tcp_user_timeout", self._timeouts.read_ms)
        parameters.setdefault("options", f"-c statement_timeout={self._timeouts.read_ms}")


def _give_up_connection(context: ExceptionContext) -> None:
    """A connection on which a time-out has passed is closed: the late answer would be taken for the next one's."""
    if isinstance(context.original_exception, OSError):
        context.is_disconnect = True


def _tune_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()
