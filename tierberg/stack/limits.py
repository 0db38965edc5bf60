"""Deadlines and sizes of the local stack. Seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

#: Maven fetching jars on a slow line.
FETCH_JARS_S: Final = 900.0
#: Go fetching and compiling a server on a slow, busy machine.
GO_BUILD_S: Final = 1200.0
#: npm fetching the Azure server on a slow line.
FETCH_NPM_S: Final = 600.0
#: The servers of Azure's and Google's stores from start to their first answer.
EMULATOR_START_S: Final = 60.0
#: The S3 server from start to its first answer.
GATEWAY_START_S: Final = 30.0
#: The REST catalog from start to its first answer; Java compiles its program first.
REST_CATALOG_START_S: Final = 60.0
#: Nessie from start to its first answer: 7 s on an idle machine.
NESSIE_START_S: Final = 120.0
#: The schema registry from start to its first answer: 4 to 11 s.
REGISTRY_START_S: Final = 120.0
#: Trino from start to its first answer: 10 to 16 s on an idle machine.
TRINO_START_S: Final = 180.0
SPARK_START_S: Final = 60.0
#: Making a PostgreSQL database, and from start to its first answer.
POSTGRES_INIT_S: Final = 60.0
POSTGRES_START_S: Final = 30.0
#: One request of ours to the S3 server: time to connect, and between two bytes of an answer.
S3_REQUEST_S: Final = 20.0
#: Between two looks at servers that should go on running.
WATCH_S: Final = 1.0
#: Formatting a broker's folder.
FORMAT_S: Final = 120.0
#: A broker from start to its first answer, on a busy two-core machine.
BROKER_START_S: Final = 120.0
#: A bridge from start to its ready line; a cold numba cache compiles for a minute, several on a busy machine.
BRIDGE_START_S: Final = 360.0
#: From SIGTERM to exit, before SIGKILL.
STOP_S: Final = 30.0
#: From SIGKILL to exit; to give back the memory of a broker took over ten seconds on a busy machine.
KILL_S: Final = 60.0
#: One administrative request to a broker.
ADMIN_S: Final = 60.0
#: One scrape of a metrics page.
SCRAPE_S: Final = 20.0
#: One answer of a Java program of ours; some ask several brokers.
ANSWER_S: Final = 60.0
#: Between two looks at something that is waited for.
POLL_S: Final = 0.1
#: What is quoted of a log file in an error message.
LOG_TAIL_BYTES: Final = 4000
