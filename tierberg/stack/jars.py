"""Java parts from the package registry, fetched once into `build/` by Maven."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tierberg.stack.command import appearing, run_to_end
from tierberg.stack.errors import StackError
from tierberg.stack.limits import FETCH_JARS_S
from tierberg.stack.paths import BUILD, SHIM_DIST
from tierberg.stack.registry_files import unpack as unpack_registry
from tierberg.stack.trino_files import unpack

#: The broker used where none is named; KAFKA_VERSION overrides it in the demo and the tests.
KAFKA_VERSION = "4.3.1"
#: Stock brokers that Tierberg is tested on.
KAFKA_VERSIONS = ("4.3.1", "4.4.0")
#: The newest version whose LocalTieredStorage is published.
LOCAL_TIER_VERSION = "4.3.1"
TRINO_VERSION = "476"
APICURIO_VERSION = "3.3.3"

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def require_kafka(version: str) -> None:
    """Raises StackError for a version of Kafka that is none of KAFKA_VERSIONS."""
    if version not in KAFKA_VERSIONS:
        raise StackError(f"Kafka {version} is not supported; choose {' or '.join(KAFKA_VERSIONS)}")


def broker_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with a stock broker's class path. Raises StackError when it cannot be fetched, or is not supported."""
    require_kafka(version)
    return _fetch("kafka-pom.xml", f"kafka-{version}", version)


def local_tier_jars() -> Path:
    """The folder with Kafka's own LocalTieredStorage. Raises StackError when it cannot be fetched."""
    return _fetch("kafka-local-tier-pom.xml", f"kafka-local-tier-{LOCAL_TIER_VERSION}", LOCAL_TIER_VERSION)


def spark_jars() -> Path:
    """The folder with Iceberg for Spark and the SQLite driver. Raises StackError when it cannot be fetched."""
    return _fetch("spark-pom.xml", "spark-4.1", "")


def spark_s3_jars() -> Path:
    """The folder with what Spark needs for tables in S3 too. Raises StackError when it cannot be fetched."""
    return _fetch("spark-s3-pom.xml", "spark-s3-1.12.0", "")


def rest_catalog_jars() -> Path:
    """The folder with Iceberg's reference REST catalog and S3 client. Raises StackError when it cannot be fetched."""
    return _fetch("iceberg-rest-pom.xml", "iceberg-rest-s3-1.11.0", "")


def nessie_jar() -> Path:
    """The one jar that is Nessie's server. Raises StackError when it cannot be fetched."""
    (jar,) = _fetch("nessie-pom.xml", "nessie-0.99.0", "").glob("*.jar")
    return jar


def trino_server() -> Path:
    """The folder with Trino's `lib` and `plugin/iceberg`. Raises StackError when it cannot be fetched."""
    return _fetch("trino-pom.xml", f"trino-{TRINO_VERSION}", "", unpack)


def registry_server() -> Path:
    """The folder with the schema registry's `quarkus-run.jar`. Raises StackError when it cannot be fetched."""
    return _fetch("apicurio-pom.xml", f"apicurio-{APICURIO_VERSION}", "", unpack_registry)


def shim_jar() -> Path:
    """The one jar a broker needs, of the installed wheel, or built by `make shim`.

    Raises:
        StackError: it is not there, or more than one is.
    """
    found = sorted(SHIM_DIST.glob("*.jar"))
    if len(found) != 1:
        raise StackError(f"expected one jar in {SHIM_DIST}, found {len(found)}; in a checkout `make shim` builds it")
    return found[0]


def _fetch(pom: str, name: str, version: str, prepare: Callable[[Path], None] | None = None) -> Path:
    """Run Maven unless the folder is complete; it becomes visible under its name only when it is, and `prepare`d."""
    folder = BUILD / name
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise StackError("Maven (mvn) is needed to fetch the jars of Kafka, Iceberg, Spark and Trino")
    with appearing(folder) as partial:
        argv = [maven, "-B", "-q", "-f", str(Path(__file__).with_name(pom)), f"-DoutputDirectory={partial}"]
        argv += ["-DincludeScope=runtime", *([f"-Dkafka.version={version}"] if version else []), _COPY]
        run_to_end(f"fetch {name}", argv, seconds=FETCH_JARS_S)
        if prepare is not None:
            prepare(partial)
    return folder
