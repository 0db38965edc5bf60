"""Rules of projections, and catalogs as Spark takes them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from iceberg_catalog.connect.rest import Timeouts
from repartition.changes.select import refuse_names
from repartition.errors import RepartitionError
from repartition.limits import KEY_CHARS_COMPARED_MAX
from repartition.run.near import bound
from repartition.run.table import partition_changes
from repartition.run.write import merge_statement
from repartition.spark.catalog import spark_catalog
from rsm_bridge.config.layout_terms import PartitionTerm, SortTerm, partition_term, row_order, sort_term
from rsm_bridge.config.projections import ProjectionRule

TERMS = [
    ("day(ts)", PartitionTerm("ts", "day"), "days(`ts`)"),
    ("days( a.b )", PartitionTerm("a.b", "day"), "days(`a`.`b`)"),
    ("hour(ts)", PartitionTerm("ts", "hour"), "hours(`ts`)"),
    ("bucket(16, customer.id)", PartitionTerm("customer.id", "bucket[16]"), "bucket(16, `customer`.`id`)"),
    ("truncate(4,code)", PartitionTerm("code", "truncate[4]"), "truncate(4, `code`)"),
    (" region ", PartitionTerm("region", "identity"), "`region`"),
]


@pytest.mark.parametrize(("text", "term", "ddl"), TERMS)
def test_partition_terms(text: str, term: PartitionTerm, ddl: str) -> None:
    assert partition_term(text) == term
    assert term.ddl() == ddl


@pytest.mark.parametrize(
    "text", ["", "bucket(0, x)", "bucket(x)", "day()", "day(a, b)", "a b", "a; DROP", "`a`", "a..b"]
)
def test_what_is_no_partition_term(text: str) -> None:
    with pytest.raises(ValueError, match=r"transform|size"):
        partition_term(text)


def test_sort_terms() -> None:
    assert sort_term("a") == SortTerm("a")
    assert sort_term("a.b DESC") == SortTerm("a.b", descending=True, nulls_first=False)
    assert sort_term("a desc nulls first").ddl() == "`a` DESC NULLS FIRST"
    assert sort_term("a asc nulls last").sql() == "a ASC NULLS LAST"
    for wrong in ("", "a up", "a, b", "a nulls", "lower(a)"):
        with pytest.raises(ValueError, match="sort field"):
            sort_term(wrong)


def test_a_z_order_is_alone_and_of_several_columns() -> None:
    assert row_order(["zorder( a,b_c )"]).sql() == "zorder(a, b_c)"
    assert row_order(["ZORDER(a, b)"]).terms == (SortTerm("a"), SortTerm("b"))
    assert row_order(["a desc", "b"]).sql() == "a DESC NULLS LAST, b ASC NULLS FIRST"
    assert row_order([]).sql() == ""
    for wrong in (["zorder(a)"], ["zorder(a, b)", "c"], ["zorder(a b)"], ["zorder(a, b) desc"]):
        with pytest.raises(ValueError, match=r"zorder\(column, column\) alone"):
            row_order(wrong)
    with pytest.raises(ValueError, match="names a column twice"):
        row_order(["zorder(a, a)"])
    with pytest.raises(ValueError, match=r"Iceberg takes no b\.c; give it a name of its own"):
        row_order(["zorder(a, b.c)"])


def test_a_spec_changes_by_what_differs() -> None:
    day, region, bucket = (partition_term(text) for text in ("day(ts)", "region", "bucket(4, id)"))
    assert partition_changes([day, region], [region, day]) == []
    assert partition_changes([day, region], [region, bucket]) == [
        "DROP PARTITION FIELD days(`ts`)",
        "ADD PARTITION FIELD bucket(4, `id`)",
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"table": "Bad-Name"}, "lower-case"),
    ({"table": "t", "mode": "upsert"}, "takes key"),
    ({"table": "t", "key": ["id"]}, "takes key"),
    ({"table": "t", "mode": "upsert", "key": ["id", "id"]}, "names a column twice"),
    ({"table": "t", "envelope": "debezium"}, "takes no envelope"),
    ({"table": "t", "adopt": True}, "takes no adopt"),
    ({"table": "t", "partition_by": ["md5(x)"]}, "no partition transform"),
    ({"table": "t", "sort_by": ["x up"]}, "no sort field"),
    ({"table": "t", "partition_by": ["day(ts)", "hour(ts)"]}, r"day\(ts\) and hour\(ts\): Iceberg takes one"),
    ({"table": "t", "partition_by": ["bucket(4, id)", "bucket(8, id)"]}, "takes one of the two"),
    ({"table": "t", "partition_by": ["region", "region"]}, "region and region: Iceberg takes one of the two"),
    ({"table": "t", "format_version": 1}, "2"),
    ({"table": "t", "unknown": 1}, "not permitted"),
]


@pytest.mark.parametrize(("given_rule", "said"), WRONG)
def test_what_a_rule_must_not_say(given_rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ProjectionRule.model_validate(given_rule)


def test_the_name_of_the_table() -> None:
    assert ProjectionRule(table="{topic}_by_day").table_of("flights", "kafka.raw") == ("kafka", "raw", "flights_by_day")
    assert ProjectionRule(table="mart.{topic}").table_of("flights", "kafka") == ("mart", "flights")


# Catalogs


def test_an_sqlite_catalog() -> None:
    conf = spark_catalog(
        "tierberg", {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/w"}
    )
    assert conf == {
        "spark.sql.catalog.tierberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.tierberg.cache-enabled": "false",
        "spark.sql.catalog.tierberg.type": "jdbc",
        "spark.sql.catalog.tierberg.uri": "jdbc:sqlite:/data/catalog.db",
        "spark.sql.catalog.tierberg.jdbc.schema-version": "V1",
        "spark.sql.catalog.tierberg.warehouse": "file:///data/w",
    }


def test_a_catalog_in_postgresql_with_a_login() -> None:
    conf = spark_catalog("c", {"uri": "postgresql+pg8000://me:secret@db:5433/lake", "warehouse": "s3://b/w"})
    assert conf["spark.sql.catalog.c.uri"] == "jdbc:postgresql://db:5433/lake"
    assert (conf["spark.sql.catalog.c.jdbc.user"], conf["spark.sql.catalog.c.jdbc.password"]) == ("me", "secret")
    assert conf["spark.sql.catalog.c.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


SHORT = Timeouts(1_500, 40_000)


def jdbc(uri: str, **more: str) -> dict[str, str]:
    """What the driver is given, by its names."""
    prefix = "spark.sql.catalog.c.jdbc."
    conf = spark_catalog("c", {"uri": uri, **more}, SHORT)
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def test_what_the_address_of_a_database_says_holds_for_the_jobs_too() -> None:
    asked = "sslmode=verify-full&sslrootcert=/etc/pki/a%20b%26c.pem&connect_timeout=7&application_name=jobs"
    found = jdbc(f"postgresql+psycopg://db/lake?{asked}")
    assert found.pop("schema-version") == "V1"
    assert found == {
        "sslmode": "verify-full",
        "sslrootcert": "/etc/pki/a b&c.pem",
        "connectTimeout": "7",
        "socketTimeout": "40",
        "ApplicationName": "jobs",
    }
    assert set(jdbc("sqlite:////data/catalog.db?timeout=5")) == {"schema-version"}


def test_no_catalog_keeps_a_job_for_ever() -> None:
    found = jdbc("postgresql+pg8000://db/lake")
    assert (found["connectTimeout"], found["socketTimeout"]) == ("2", "40")
    assert jdbc("postgresql+pg8000://db/lake", **{"jdbc.socketTimeout": "90"})["socketTimeout"] == "90"
    prefix = "spark.sql.catalog.c.rest.client."
    conf = spark_catalog("c", {"uri": "https://catalog"}, SHORT)
    assert conf[f"{prefix}connection-timeout-ms"] == "1500"
    assert conf[f"{prefix}socket-timeout-ms"] == "40000"
    own = {"uri": "https://catalog", "rest.client.socket-timeout-ms": "9"}
    assert spark_catalog("c", own, SHORT)[f"{prefix}socket-timeout-ms"] == "9"
    assert not any("rest.client" in key for key in spark_catalog("c", {"type": "glue"}))


def test_a_rest_catalog_and_its_store() -> None:
    given_properties = {
        "type": "rest",
        "uri": "https://catalog",
        "warehouse": "lake",
        "credential": "id:secret",
        "s3.endpoint": "http://s3",
        "s3.region": "eu-1",
        "s3.access-key-id": "k",
        "s3.connect-timeout": "2",
    }
    conf = spark_catalog("lake", given_properties)
    prefix = "spark.sql.catalog.lake."
    assert conf[f"{prefix}uri"] == "https://catalog"
    assert conf[f"{prefix}credential"] == "id:secret"
    assert conf[f"{prefix}client.region"] == "eu-1"
    assert conf[f"{prefix}s3.endpoint"] == "http://s3"
    assert f"{prefix}s3.connect-timeout" not in conf
    assert conf[f"{prefix}io-impl"].endswith("S3FileIO")


def test_a_catalog_that_spark_must_be_told_of_by_hand() -> None:
    with pytest.raises(RepartitionError, match=r"repartition\.spark"):
        spark_catalog("c", {"type": "dynamodb"})


# The statement


def _merge_of(names: list[str], *, insert: bool = True, may_keep: tuple[str, ...] = (), **rule: Any) -> list[str]:
    made = ProjectionRule.model_validate({"table": "x", "mode": "upsert", **rule})
    return merge_statement("t", "c", made, names, insert=insert, may_keep=may_keep).splitlines()


def test_each_clause_of_the_merge_asks_for_a_later_record() -> None:
    lines = _merge_of(["a", "b", "n"], key=["a", "b"])
    assert lines[0] == "MERGE INTO t t USING c s ON t.`a` = s.`a` AND t.`b` = s.`b`"
    assert "raise_error" in lines[1]
    assert all("s._kafka_offset > coalesce(t._kafka_offset, -1)" in line for line in lines[2:4])
    assert lines[4].startswith("WHEN NOT MATCHED AND NOT s.`__tierberg_deleted` THEN INSERT")
    moving = _merge_of(["a", "n"], key=["a"], key_order="timestamp")
    assert not any("raise_error" in line for line in moving)
    made = ProjectionRule.model_validate({"table": "x", "mode": "upsert", "key": ["a"]})
    near = merge_statement("t", "c", made, ["a", "n"], insert=True, near=["t.`a` BETWEEN 1 AND 7", "f(t.`a`) IN (3)"])
    assert near.splitlines()[0].endswith(" ON t.`a` = s.`a` AND t.`a` BETWEEN 1 AND 7 AND f(t.`a`) IN (3)")
    inner = _merge_of(["a", "n"], key=["a"], insert=False)
    assert not any("NOT MATCHED" in line for line in inner)
    assert "t.`n` = s.`n`" in inner[1], "every column is assigned, so none of the table's is read"
    kept = _merge_of(["a", "n", "it's"], key=["a"], may_keep=("it's",), soft_deletes=True)
    assert "t.`it's` = CASE WHEN array_contains(s.`__tierberg_kept`, 'it\\'s') THEN t.`it's`" in kept[3]
    assert "AND NOT s.`__tierberg_marks` THEN INSERT" in kept[4]


def test_which_keys_are_compared_with_bounds() -> None:
    longest = "x" * KEY_CHARS_COMPARED_MAX
    values = (7, "it's", longest, longest + "x", 0.5, b"x", None)
    assert [bound(value, "…") for value in values] == ["7", "'it\\'s'", f"'{longest}'", *[None] * 4]
    assert bound(-(2**31), "date") == "date_from_unix_date(-2147483648)"


@given(st.text(max_size=20))
def test_terms_are_refused_or_quoted(text: str) -> None:
    try:
        ddl = partition_term(text).ddl()
    except ValueError:
        return
    assert ";" not in ddl
    assert "--" not in ddl


@pytest.mark.parametrize(
    ("select", "given", "seen", "said"),
    [
        (["*"], ["value"], ["value"], "`key` needs id, and the topic's table has no such column yet"),
        (["id AS order_id"], ["order_id"], ["id"], "`key` needs id, which `select` does not give"),
        (["number AS order_id"], ["order_id"], ["number"], "`key` needs id, which `select` does not give"),
        (["*"], ["id__2"], ["id"], "`key` needs id, which `select` does not give"),
    ],
)
def test_where_a_key_is_missing(select: list[str], given: list[str], seen: list[str], said: str) -> None:
    rule = ProjectionRule.model_validate({"table": "t", "mode": "upsert", "key": ["id"], "select": select})
    identity = ["_kafka_partition", "_kafka_offset"]
    texts = [(name, [name]) for name in (*given, *identity)]
    with pytest.raises(RepartitionError, match=re.escape(said)) as refused:
        refuse_names(texts, {name: name for name in identity}, rule, [*seen, *identity])
    assert refused.value.kind == "bad_rule"
