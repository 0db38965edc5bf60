"""evolved(): what lands in a real catalog, whatever becomes of requests, replies and processes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from converter.values.project import project
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.connect.sql import TimedSqlCatalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.evolve import table as evolve_table
from iceberg_catalog.evolve.evolve import bind
from iceberg_catalog.evolve.names import SOURCES, Sources
from iceberg_catalog.evolve.table import GENERATION, Evolved, WriterTypes, evolved
from iceberg_catalog.evolve.types import typed_row_schema, value_columns
from iceberg_catalog.limits import EVOLVE_ATTEMPTS_MAX
from iceberg_catalog.tables.data_file import data_file
from tests.support.evolving import check_schema, check_step
from tests.support.killed import KilledError
from tests.worlds.catalog_support import OWNER, STATE, Place, make_place, make_rows

INT, TEXT = pa.int32(), pa.string()
INNER = pa.struct([("b", INT)])
FIRST = pa.struct([("a", INT), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(TEXT, INNER))])
WIDER = pa.struct([("b", pa.int64()), ("c", TEXT)])
SECOND = pa.struct(
    [("new", TEXT), ("m", pa.map_(TEXT, WIDER)), ("l", pa.list_(WIDER)), ("s", WIDER), ("a", pa.int64())]
)
EVOLVED = ["a", "s", "l", "m", "new"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolve_table, "EVOLVE_PAUSE_MS", 1)


def evolve(place: Place, *writers: pa.StructType, catalog: Any = None, **options: Any) -> Evolved:
    given: dict[str, Any] = {"incompatible": "new-column", "generation": 1, **options}
    return evolved(catalog or place.catalog, place.load(), [WriterTypes(writer) for writer in writers], **given)


def columns(table: Table) -> list[str]:
    return [field.name for field in value_columns(table.schema())]


def binds(table: Table, *writers: pa.StructType) -> bool:
    sources = Sources.decode(table.properties.get(SOURCES))
    return all(bind(table.schema(), sources, writer) is not None for writer in writers)


class Unsteady:
    """A catalog that does what `act` makes of a request; counts them."""

    def __init__(self, place: Place, act: Callable[[Callable[[], Any]], Any]) -> None:
        self.place, self.act, self.requests = place, act, 0

    def commit_table(self, *args: Any) -> Any:
        self.requests += 1
        return self.act(lambda: self.place.catalog.commit_table(*args))

    def load_table(self, identifier: Any) -> Any:
        return self.place.catalog.load_table(identifier)


def test_one_request_adds_widens_and_nests_in_order(place: Place) -> None:
    evolve(place, FIRST)
    before = place.load()
    catalog = Unsteady(place, lambda send: send())
    result = evolve(place, SECOND, catalog=catalog)
    assert catalog.requests == 1
    table = place.load()
    assert table.schema() == result.table.schema()
    check_schema(table.schema())
    check_step(before.schema(), table.schema(), before.metadata.last_column_id)
    assert columns(table) == EVOLVED
    for path in ("s", "l.element", "m.value"):
        assert str(table.schema().find_type(f"{path}.b")) == "long"
        assert str(table.schema().find_type(f"{path}.c")) == "string"
    assert binds(table, FIRST, SECOND)
    assert table.properties[GENERATION] == "1"
    assert table.properties["write.metadata.metrics.default"] == "none"
    assert [field.name for field in table.schema().fields][-1] == "_kafka_error"
    assert evolve(place, FIRST, SECOND, catalog=catalog).changes == ()
    assert catalog.requests == 1


def test_rows_written_before_and_after_are_read_together(place: Place) -> None:
    raw = place.write(0, 4)
    evolve(place, FIRST)
    first = typed_file(place, FIRST, 5, [{"a": 1, "s": {"b": 2}, "l": [{"b": 3}], "m": [("k", {"b": 4})]}, None])
    evolve(place, SECOND)
    value = {"b": 2**40, "c": "x"}
    second = typed_file(place, SECOND, 7, [{"new": "n", "m": [("k", value)], "l": [value], "s": value, "a": 2**40}])
    head = LiveFiles().read(place.load())
    outcome = commit(place.catalog, head, Change(append=(raw, first, second)), STATE, commit_id="c", as_of_ms=0)
    assert outcome.kind == "committed"
    rows = place.load().scan().to_arrow().sort_by("_kafka_offset").select(EVOLVED).to_pylist()
    nothing = dict.fromkeys(EVOLVED)
    old = {"b": 3, "c": None}
    assert rows[:5] == [nothing] * 5
    assert rows[5] == {"a": 1, "s": {"b": 2, "c": None}, "l": [old], "m": [("k", {"b": 4, "c": None})], "new": None}
    # PyIceberg's reader shows a null list or map that is in the file as an empty one.
    assert rows[6] == nothing | {"l": [], "m": []}
    assert rows[7] == {"a": 2**40, "s": value, "l": [value], "m": [("k", value)], "new": "n"}


def typed_file(place: Place, writer: pa.StructType, first: int, values: list[Any]) -> Any:
    """A data file of the table as it is, filled from a writer's values."""
    table = place.load()
    schema = table.schema()
    bound = bind(schema, Sources.decode(table.properties.get(SOURCES)), writer)
    assert bound is not None
    typed = project(pa.array(values, writer), bound, value_columns(schema))
    raw = make_rows(range(first, first + len(values)), 0, "raw")
    arrays = [raw[name] for name in raw.column_names]
    rows = pa.Table.from_arrays(
        [*typed.flatten(), *arrays, pa.nulls(len(values), TEXT)], schema=typed_row_schema(schema)
    )
    path = place.data / f"{first}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return data_file(table, path.as_uri(), path.stat().st_size, pq.read_metadata(path), 0)


def test_an_evolution_does_not_disturb_a_commit_planned_before_it_nor_the_other_way_round(place: Place) -> None:
    head = LiveFiles().read(place.load())
    data = place.write(0, 9)
    stale = place.load()
    evolve(place, FIRST)
    assert commit(place.catalog, head, Change(append=(data,)), STATE, commit_id="c", as_of_ms=0).kind == "committed"
    assert columns(place.load()) == columns_of(FIRST)
    assert place.offsets() == list(range(10))
    # An evolution computed before data was committed lands as it is: the head is none of its business.
    catalog = Unsteady(place, lambda send: send())
    fresh = place.load()
    commit(
        place.catalog, LiveFiles().read(fresh), Change(append=(place.write(10, 19),)), STATE, commit_id="d", as_of_ms=0
    )
    evolved(catalog, fresh, [WriterTypes(SECOND)], incompatible="new-column", generation=1)  # type: ignore[arg-type]
    assert catalog.requests == 1
    assert place.offsets() == list(range(20))
    # One computed on a schema that has gone by is refused once and computed again.
    result = evolved(catalog, stale, [WriterTypes(pa.struct([("late", INT)]))], incompatible="new-column", generation=1)  # type: ignore[arg-type]
    assert catalog.requests == 3
    assert columns(result.table) == [*EVOLVED, "late"]


def columns_of(writer: pa.StructType) -> list[str]:
    return [field.name for field in writer]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize(
    "error", [CommitStateUnknownException("502"), CommitFailedException("409"), TimeoutError(), ValueError("garbled")]
)
def test_a_lost_reply_or_request_is_the_same_act(place: Place, error: Exception, landed: bool) -> None:
    failures = [error, error]

    def act(send: Callable[[], Any]) -> Any:
        if not failures:
            return send()
        if landed:
            send()
        raise failures.pop()

    catalog = Unsteady(place, act)
    result = evolve(place, FIRST, catalog=catalog)
    assert catalog.requests == (1 if landed else 3)
    assert binds(result.table, FIRST)
    assert columns(place.load()) == columns_of(FIRST)
    assert place.load().metadata.last_column_id == result.table.metadata.last_column_id


def test_a_request_that_lands_late_is_refused_or_harmless(place: Place) -> None:
    held: list[Callable[[], Any]] = []

    def hold_first(send: Callable[[], Any]) -> Any:
        if not held:
            held.append(send)
            raise TimeoutError
        return send()

    evolve(place, FIRST, catalog=Unsteady(place, hold_first))
    once = place.load()
    with pytest.raises(CommitFailedException):
        held[0]()
    assert place.load().schema() == once.schema()


def hold(held: list[Callable[[], Any]]) -> Callable[[Callable[[], Any]], Any]:
    """Keeps the request; its sender dies."""

    def act(send: Callable[[], Any]) -> Any:
        held.append(send)
        raise KilledError

    return act


def test_a_late_request_without_new_columns_does_not_undo_what_came_since(place: Place) -> None:
    """Widening gives out no field id: the schema's own number has to have moved."""
    held: list[Callable[[], Any]] = []
    evolve(place, pa.struct([("a", INT), ("b", INT)]))
    with pytest.raises(KilledError):
        evolve(place, pa.struct([("a", pa.int64())]), catalog=Unsteady(place, hold(held)))
    evolve(place, pa.struct([("b", pa.int64())]))
    with pytest.raises(CommitFailedException):
        held[0]()
    assert str(place.load().schema().find_type("b")) == "long"


def test_a_late_request_does_not_give_out_an_id_again(place: Place) -> None:
    """Somebody drops the column that came since: the schema is the old one again, number and all."""
    held: list[Callable[[], Any]] = []
    evolve(place, FIRST)
    with pytest.raises(KilledError):
        evolve(place, SECOND, catalog=Unsteady(place, hold(held)))
    evolve(place, pa.struct([("theirs", INT)]))
    table = place.load()
    then, last_id = table.metadata.current_schema_id, table.metadata.last_column_id
    with table.update_schema() as update:
        update.delete_column("theirs")
    assert place.load().metadata.current_schema_id < then
    with pytest.raises(CommitFailedException):
        held[0]()
    evolve(place, SECOND)
    assert place.load().schema().find_field("new").field_id > last_id


def test_it_gives_up_after_so_many_requests_and_says_why(place: Place) -> None:
    def refuse(_: Callable[[], Any]) -> Any:
        raise ConnectionError("no route")

    catalog = Unsteady(place, refuse)
    with pytest.raises(CatalogError, match="no route") as error:
        evolve(place, FIRST, catalog=catalog)
    assert error.value.kind == "unavailable"
    assert catalog.requests == EVOLVE_ATTEMPTS_MAX


def test_the_last_request_may_be_the_one_that_lands(place: Place) -> None:
    left = [EVOLVE_ATTEMPTS_MAX]

    def last(send: Callable[[], Any]) -> Any:
        left[0] -= 1
        if left[0]:
            raise ConnectionError
        return send()

    assert binds(evolve(place, FIRST, catalog=Unsteady(place, last)).table, FIRST)


def test_it_gives_up_at_its_deadline(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolve_table, "EVOLVE_DEADLINE_MS", -1)
    with pytest.raises(CatalogError, match="could not be given the columns") as error:
        evolve(place, FIRST)
    assert error.value.kind == "unavailable"


@pytest.mark.parametrize("moment", ["before", "metadata", "after"])
def test_a_process_that_dies_leaves_what_the_next_one_completes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the request, when the metadata file is written but the catalog's row is not, and before the reply."""

    def die(send: Callable[[], Any]) -> Any:
        if moment == "after":
            send()
        if moment == "metadata":
            with monkeypatch.context() as patched:
                patched.setattr(TimedSqlCatalog, "_write_metadata", staticmethod(written_then_dead))
                send()
        raise KilledError

    def written_then_dead(*given: Any, **named: Any) -> None:
        original(*given, **named)
        raise KilledError

    original = TimedSqlCatalog._write_metadata
    with pytest.raises(KilledError):
        evolve(place, FIRST, catalog=Unsteady(place, die))
    after_crash = columns(place.load())
    assert after_crash == (columns_of(FIRST) if moment == "after" else [])
    next_process = open_catalog(embedded_settings(tmp_path))
    result = evolve(place, FIRST, SECOND, catalog=next_process)
    next_process.close()
    assert columns(result.table) == EVOLVED
    assert binds(place.load(), FIRST, SECOND)


def test_bridges_that_evolve_at_once_all_bind(place: Place, tmp_path: Path) -> None:
    writers = [
        pa.struct([("same", INT), (f"own{number}", TEXT), ("kind", kind)]) for number, kind in enumerate((INT, TEXT))
    ]
    start = threading.Barrier(2)

    def run(number: int) -> Evolved:
        catalog = open_catalog(embedded_settings(tmp_path))
        table = catalog.load_table(place.table.name())
        start.wait()
        result = evolved(catalog, table, [WriterTypes(writers[number])], incompatible="new-column", generation=1)
        catalog.close()
        return result

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    table = place.load()
    assert binds(table, *writers)
    assert sorted(columns(table)) == ["kind", "kind__v2", "own0", "own1", "same"]
    check_schema(table.schema())


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_of_lost_requests_and_replies(place: Place, seed: int) -> None:
    draw = random.Random(seed)
    held: list[Callable[[], Any]] = []
    errors = [CommitFailedException("409"), CommitStateUnknownException("503"), TimeoutError("slow")]

    def storm(send: Callable[[], Any]) -> Any:
        if held and draw.random() < 0.3:
            late = held.pop()
            with suppress(CommitFailedException):
                late()
        fate = draw.choice(["fine", "lost", "landed", "twice", "held"])
        if fate == "held":
            held.append(send)
        if fate in ("landed", "twice"):
            send()
        if fate in ("fine", "twice"):
            return send()
        raise draw.choice(errors)

    catalog = Unsteady(place, storm)
    writers = [
        pa.struct([("a", kind), (f"n{number}", INT)]) for number, kind in enumerate([INT, TEXT, INT, pa.bool_()])
    ]
    for writer in (*writers, SECOND):
        before = place.load()
        try:
            evolve(place, writer, catalog=catalog)
        except CatalogError as error:  # ten lost requests in a row
            assert error.kind == "unavailable"  # noqa: PT017
            evolve(place, writer)
        after = place.load()
        check_step(before.schema(), after.schema(), before.metadata.last_column_id)
        assert binds(after, writer)
    table = place.load()
    assert binds(table, *writers, SECOND)
    assert sum(column.startswith("a") for column in columns(table)) == 3


def test_older_rules_change_nothing_newer_ones_stamp_theirs(place: Place) -> None:
    evolve(place, FIRST, generation=3)
    with pytest.raises(CatalogError, match="generation 3, these are of generation 2") as error:
        evolve(place, SECOND, generation=2)
    assert error.value.kind == "older_generation"
    assert columns(place.load()) == columns_of(FIRST)
    assert evolve(place, FIRST, generation=2).refused == ((),)
    assert place.load().properties[GENERATION] == "3"
    catalog = Unsteady(place, lambda send: send())
    evolve(place, FIRST, generation=4, catalog=catalog)
    assert (place.load().properties[GENERATION], catalog.requests) == ("4", 1)
    evolve(place, FIRST, generation=4, catalog=catalog)
    assert catalog.requests == 1


def test_what_cannot_be_taken_is_said_by_writer_and_the_others_bind(place: Place) -> None:
    evolve(place, pa.struct([("a", INT)]))
    result = evolve(place, pa.struct([("a", TEXT)]), pa.struct([("b", TEXT)]), incompatible="dead-letter")
    assert result.refused == (("a: the column's type cannot take string",), ())
    assert columns(result.table) == ["a", "b"]
    assert place.load().properties.get(SOURCES) is None


def test_a_table_of_the_same_name_is_not_evolved(place: Place) -> None:
    stale = place.load()
    place.catalog.drop_table(stale.name())
    make_place(place.data.parents[1], owner=OWNER)
    with pytest.raises(CatalogError, match="dropped and created again") as error:
        evolved(place.catalog, stale, [WriterTypes(FIRST)], incompatible="new-column", generation=1)
    assert error.value.kind == "owner_mismatch"
    assert columns(place.load()) == []


@pytest.mark.parametrize(("name", "text"), [(SOURCES, "{}]"), (GENERATION, "one")])
def test_a_damaged_property_is_said(place: Place, name: str, text: str) -> None:
    with place.table.transaction() as transaction:
        transaction.set_properties({name: text})
    with pytest.raises(CatalogError, match=name) as error:
        evolve(place, FIRST)
    assert error.value.kind == "schema_mismatch"


def test_a_rename_takes_its_metrics_along(place: Place) -> None:
    evolve(place, pa.struct([("old", TEXT)]))
    evolve(place, pa.struct([pa.field("new", TEXT, metadata={b"tierberg.aliases": b'["old"]'})]))
    table = place.load()
    prefix = "write.metadata.metrics.column."
    assert table.properties[f"{prefix}new"] == "truncate(16)"
    assert f"{prefix}old" not in table.properties
    assert table.properties[SOURCES] == '{"12":["new","old"]}'
    assert columns(table) == ["new"]
