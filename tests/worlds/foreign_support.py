"""What engines do to a table of ours, done with PyIceberg: insert, delete, rewrite."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.typedef import Record

from tests.worlds.catalog_support import Place, make_rows

POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


class DeleteManifestWriter(ManifestWriterV2):
    """PyIceberg reads manifests of delete files and writes none."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def insert(table: Table, offsets: range = range(100, 103), partition: int = 0) -> None:
    table.append(make_rows(offsets, partition, "raw"))


def delete_whole_files(table: Table, partition: int = 0) -> None:
    """As `DELETE … WHERE _kafka_partition = …`: no file comes."""
    table.delete(f"_kafka_partition = {partition}")


def rewrite(table: Table) -> None:
    """Every row into files of the engine's own."""
    rows = table.scan().to_arrow()
    table.overwrite(rows.cast(make_rows(range(1), 0, "raw").schema))


def delete_by_position(place: Place, path: str, positions: list[int], partition: int = 0) -> None:
    """As a merge-on-read DELETE or UPDATE: a delete file comes, the data file stays."""
    table = place.load()
    metadata = table.metadata
    file = Path(table.location().removeprefix("file://")) / f"deletes-{uuid.uuid4().hex}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"file_path": [path] * len(positions), "pos": positions}, schema=POSITION_DELETES), file)
    item = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=file.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=len(positions),
        file_size_in_bytes=file.stat().st_size,
        spec_id=metadata.default_spec_id,
    )
    snapshot_id, head = metadata.new_snapshot_id(), metadata.current_snapshot()
    assert head is not None
    folder = table.location() + "/metadata"
    output = table.io.new_output(f"{folder}/{uuid.uuid4()}-m0.avro")
    with DeleteManifestWriter(metadata.spec(), metadata.schema(), output, snapshot_id, "deflate") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=item)
        )
    manifests = [*read_manifest_list(table.io.new_input(head.manifest_list)), writer.to_manifest_file()]
    summary = Summary(Operation.DELETE, **{"added-delete-files": "1"})
    commit_manifests(place.catalog, table, snapshot_id, manifests, summary)


def commit_manifests(
    catalog: Catalog, table: Table, snapshot_id: int, manifests: list[ManifestFile], summary: Summary
) -> None:
    """As an engine does it: one snapshot of these manifests on the table's head."""
    metadata, head = table.metadata, table.current_snapshot()
    assert head is not None
    sequence_number = metadata.next_sequence_number()
    manifest_list = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(manifest_list),
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence_number,
        avro_compression="deflate",
    ) as lists:
        lists.add_manifests(manifests)
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": head.snapshot_id,
            "manifest-list": manifest_list,
            "sequence-number": sequence_number,
            "summary": summary,
            "schema-id": metadata.current_schema_id,
        }
    )
    updates: tuple[TableUpdate, ...] = (AddSnapshotUpdate(snapshot=snapshot), *set_head(snapshot_id))
    on_head = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id})
    catalog.commit_table(table, (on_head,), updates)


def roll_back(place: Place, snapshot_id: int) -> None:
    """As the engines' `rollback_to_snapshot`."""
    place.catalog.commit_table(place.load(), (), set_head(snapshot_id))


def drop_tag(place: Place, name: str) -> None:
    place.load().manage_snapshots().remove_tag(name).commit()


def set_head(snapshot_id: int) -> tuple[TableUpdate, ...]:
    named = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    return (SetSnapshotRefUpdate.model_validate(named),)
