"""Which test sees the effect of a setting in the product: what is copied, served, in the table or refused.

A test that looks at the parsed settings, or at a report about them, does not count, but where the setting is there for
a report (`kafka`, `freshness_target`). Sections are seen by their keys.
"""

from __future__ import annotations

from typing import Final

_PROJECTIONS = "tests/projections/test_projections_"
_CERTIFICATES = "tests/faults/test_faults_certificates.py::test_"
_LIMITS = "tests/bridge/config/test_settings_limits.py::test_"
_PLACES = "tests/bridge/config/test_settings_places.py::test_"
_MERGE = "tests/bridge/config/test_settings_merge.py::test_files_that_are_left"
_REGISTRY = "tests/unit/converter/test_values_registry.py::test_"
_ROUNDS = "tests/bridge/tables/test_bridge_publisher_rounds.py::test_"
_TYPED = "tests/bridge/values/test_bridge_typed.py::test_"
_CLIENTS = "tests/bridge/serving/test_bridge_clients.py::test_each_call_by_its_certificate"
_MART = (
    "tests/unit/repartition/spark/test_repartition_catalogs.py::test_a_projection_s_catalog_is_made_where_its_rule_says"
)
_PRIVATE = "tests/bridge/serving/test_bridge_private_files.py::test_"

EFFECTS: Final[dict[str, str]] = {
    "data_dir": f"{_PRIVATE}store_catalog_lock_and_cache_and_the_peer_in_the_log",
    "listen": f"{_PRIVATE}the_socket_is_for_its_user_and_group",
    "metrics_listen": "tests/bridge/status/test_status_probes.py::test_a_sound_bridge_is_alive_and_ready",
    "insecure": f"{_PLACES}beyond_loopback_is_listened_only_where_that_is_accepted",
    "reclaim_grace": f"{_PLACES}how_long_what_was_deleted_stays",
    "mass_delete_grace": f"{_PLACES}how_long_what_was_deleted_stays",
    "maintain_interval": "tests/bridge/maintain/test_maintain_commands.py::test_the_background_does_it_too_and_counts",
    "publish_interval": f"{_ROUNDS}an_idle_table_runs_at_once_and_a_busy_one_once_an_interval",
    "freshness_target": "tests/bridge/status/test_status_command.py::test_a_waiting_transaction_is_named",
    "generation": "tests/bridge/values/test_bridge_rules_changed.py"
    "::test_a_bridge_with_older_rules_for_bytes_is_held_back",
    "tls.certificate_file": f"{_CERTIFICATES}the_right_certificate_is_served",
    "tls.key_file": f"{_CERTIFICATES}the_right_certificate_is_served",
    "tls.client_ca_file": f"{_CERTIFICATES}others_are_refused_and_harm_nobody",
    "tls.clients[].names": _CLIENTS,
    "tls.clients[].clusters": _CLIENTS,
    "tls.clients[].may": _CLIENTS,
    "store.url": "tests/unit/rsm_bridge/storage/test_bridge_open_store.py::test_s3_options_reach_the_server",
    "store.options": "tests/unit/rsm_bridge/storage/test_bridge_open_store.py::test_s3_options_reach_the_server",
    "store.fetch_timeout": "tests/unit/rsm_bridge/storage/test_bridge_open_store.py"
    "::test_a_silent_store_ends_a_fetch_within_its_time",
    "store.upload_timeout": "tests/unit/rsm_bridge/storage/test_bridge_open_store.py"
    "::test_a_silent_store_ends_everything_else_too",
    "catalog.name": f"{_PLACES}a_catalog_by_name_namespace_properties_and_warehouse",
    "catalog.properties": f"{_PLACES}a_catalog_by_name_namespace_properties_and_warehouse",
    "catalog.namespace": f"{_PLACES}a_catalog_by_name_namespace_properties_and_warehouse",
    "catalog.warehouse": f"{_PLACES}a_catalog_by_name_namespace_properties_and_warehouse",
    "catalog.layout": "tests/bridge/tables/test_bridge_layout_inside.py"
    "::test_two_topic_ids_of_one_name_have_locations_of_their_own",
    "catalog.connect_timeout": f"{_PLACES}how_long_a_catalog_is_waited_for",
    "catalog.read_timeout": f"{_PLACES}how_long_a_catalog_is_waited_for",
    "kafka.bootstrap_servers": f"{_PLACES}the_named_broker_is_asked_by_a_client_with_the_properties",
    "kafka.properties": f"{_PLACES}the_named_broker_is_asked_by_a_client_with_the_properties",
    **{f"merge.{name}": _MERGE for name in ("small_mib", "target_mib", "files_min", "files_max", "age", "span")},
    "limits.copy_memory_mib": f"{_LIMITS}copies_at_once",
    "limits.copy_workers": f"{_LIMITS}copies_at_once",
    "limits.copies_max": f"{_LIMITS}copies_running_and_waiting",
    "limits.fetch_workers": f"{_LIMITS}fetches_that_read_at_once",
    "limits.fetches_max": f"{_LIMITS}open_fetches",
    "limits.control_workers": f"{_LIMITS}deletes_at_once",
    "limits.chunk_cache_mib": f"{_LIMITS}what_is_read_again_comes_from_the_cache_as_far_as_it_fits",
    "limits.index_cache_mib": f"{_LIMITS}what_is_read_again_comes_from_the_cache_as_far_as_it_fits",
    "limits.decompressed_batch_mib": "tests/faults/test_faults_segments.py::test_a_bomb_is_kept_and_served",
    "repartition.spark": f"{_PROJECTIONS}java.py::test_no_setting_is_in_a_command_line",
    "repartition.max_mib": f"{_PROJECTIONS}processes.py::test_three_processes_at_once",
    "repartition.side_by_side": f"{_PROJECTIONS}following.py::test_projections_run_side_by_side",
    "repartition.interval": f"{_PROJECTIONS}following.py::test_topics_that_come_after_the_job_has_begun_are_kept",
    "repartition.metrics": "tests/unit/repartition/jobs/test_repartition_seeing.py"
    "::test_a_job_serves_the_page_that_the_settings_name",
    "schema_registry.url": f"{_TYPED}two_versions_in_one_batch_and_a_tombstone",
    "schema_registry.username": f"{_REGISTRY}credentials_are_sent_and_never_said",
    "schema_registry.password": f"{_REGISTRY}credentials_are_sent_and_never_said",
    "schema_registry.bearer_token": f"{_REGISTRY}credentials_are_sent_and_never_said",
    "schema_registry.logical_cluster": f"{_REGISTRY}credentials_are_sent_and_never_said",
    "schema_registry.request_timeout": f"{_REGISTRY}a_look_up_ends_at_its_deadline_and_leaves_nothing_running",
    "schema_registry.latest_refresh": f"{_REGISTRY}the_latest_is_asked_for_again_after_its_time",
    "schema_registry.tls.ca_file": "tests/unit/converter/test_values_registry_tls.py"
    "::test_our_certificate_is_shown_and_theirs_checked",
    "schema_registry.tls.certificate_file": "tests/unit/converter/test_values_registry_tls.py"
    "::test_without_either_there_is_no_answer",
    "schema_registry.tls.key_file": "tests/unit/converter/test_values_registry_tls.py"
    "::test_our_certificate_is_shown_and_theirs_checked",
    "schema_registry.tls.key_password": f"{_PLACES}the_password_of_the_key_for_the_registry",
    "topics[].pattern": f"{_TYPED}the_rule_names_the_table",
    "topics[].value_format": "tests/bridge/values/test_bridge_key_formats.py::test_columns_errors_and_bytes",
    "topics[].key_format": "tests/bridge/values/test_bridge_key_formats.py::test_columns_errors_and_bytes",
    "topics[].mode": f"{_PLACES}a_verbatim_topic_has_bytes_and_no_table",
    "topics[].table": f"{_TYPED}the_rule_names_the_table",
    "topics[].incompatible": f"{_TYPED}or_is_a_dead_letter_where_the_rule_says_so",
    "topics[].value_bytes": f"{_TYPED}values_written_in_other_ways_keep_their_bytes",
    "topics[].decode_budget": f"{_TYPED}without_budget_columns_follow",
    "topics[].table_retention": "tests/bridge/tables/test_bridge_row_exact.py::test_rows_that_retention_deleted_stay",
    "topics[].value_schema.from": f"{_PLACES}where_schemas_come_from",
    "topics[].value_schema.subject": f"{_PLACES}where_schemas_come_from",
    "topics[].value_schema.text": f"{_TYPED}a_schema_of_the_rule",
    "topics[].value_schema.file": f"{_PLACES}where_schemas_come_from",
    "topics[].value_schema.message": f"{_PLACES}where_schemas_come_from",
    **{
        f"topics[].key_schema.{name}": f"{_PLACES}where_schemas_come_from"
        for name in ("from", "subject", "text", "file", "message")
    },
    "topics[].copies[].table": f"{_PROJECTIONS}append.py::test_every_record_once_in_several_runs",
    "topics[].copies[].mode": f"{_PROJECTIONS}upsert.py::test_the_latest_row_of_each_key",
    "topics[].copies[].key": f"{_PROJECTIONS}upsert.py::test_the_latest_row_of_each_key",
    "topics[].copies[].envelope": f"{_PROJECTIONS}upsert.py::test_debezium_envelopes",
    "topics[].copies[].unavailable_value": f"{_PROJECTIONS}cdc.py::test_another_placeholder_and_none",
    "topics[].copies[].soft_deletes": f"{_PROJECTIONS}cdc.py::test_deleted_rows_stay_with_a_mark",
    "topics[].copies[].adopt": f"{_PROJECTIONS}adopt.py::test_a_table_of_the_user_s_becomes_a_projection",
    "topics[].copies[].explode": f"{_PROJECTIONS}explode.py::test_each_item_is_a_row",
    "topics[].copies[].source_order": f"{_PROJECTIONS}source_order.py::test_a_position_of_several_columns",
    "topics[].copies[].key_order": f"{_PROJECTIONS}races.py::test_keys_may_move_where_timestamps_order_them",
    "topics[].copies[].select": f"{_PROJECTIONS}append.py::test_a_column_that_the_rule_gives_no_more_stays",
    "topics[].copies[].where": f"{_PROJECTIONS}upsert.py::test_a_row_that_leaves_the_condition_leaves_the_projection",
    "topics[].copies[].partition_by": f"{_PROJECTIONS}append.py::test_partition_fields_and_sort_order_change_in_place",
    "topics[].copies[].sort_by": f"{_PROJECTIONS}append.py::test_partition_fields_and_sort_order_change_in_place",
    "topics[].copies[].target_file_mib": f"{_PLACES}the_table_of_a_projection_is_made_as_its_rule_says",
    "topics[].copies[].retention": f"{_PROJECTIONS}maintenance.py::test_rows_older_than_the_rule_s_retention_leave",
    "topics[].copies[].hold": f"{_PROJECTIONS}losses.py::test_rows_beyond_the_hold_are_lost_and_that_is_said",
    "topics[].copies[].format_version": f"{_PROJECTIONS}key.py::test_a_format_version_comes_and_never_goes_back",
    "topics[].copies[].row_writes": f"{_PROJECTIONS}upsert.py::test_the_latest_row_of_each_key",
    "topics[].copies[].catalog.name": _MART,
    "topics[].copies[].catalog.properties": _MART,
}

_JAVA: Final = "java-shim/src/test/java/io/tierberg/rsm/"

#: The same for the plugin's settings, `rsm.config.*` in the broker's: a test of the shim against a bridge over gRPC.
SHIM_EFFECTS: Final[dict[str, str]] = {
    "bridge.target": f"{_JAVA}FailoverTest.java::allCallsForASegmentGoToOneBridge",
    "bridge.dns.interval.ms": f"{_JAVA}DnsTest.java::everyAddressIsABridgeAndTheyMayChange",
    "bridge.failover.percent": f"{_JAVA}FailoverTest.java::theShareIsTheOneThatWasSet",
    "cluster.name": f"{_JAVA}CopyTest.java::metadataIsWhatTheBrokerGave",
    "bridge.tls.enabled": f"{_JAVA}TlsTest.java::plaintextAndTlsDoNotMix",
    "bridge.tls.ca.file": f"{_JAVA}TlsTest.java::aBridgeWithAnUnknownCertificateIsRefused",
    "bridge.tls.certificate.file": f"{_JAVA}TlsTest.java::allOperationsOverMutualTls",
    "bridge.tls.key.file": f"{_JAVA}TlsTest.java::allOperationsOverMutualTls",
    "bridge.tls.server.name": f"{_JAVA}TlsTest.java::theNameInTheCertificateIsChecked",
    "peek.later.txn.indexes": f"{_JAVA}LaterTransactionIndexesTest.java::laterOnesInOrder",
    "connect.timeout.ms": f"{_JAVA}ConnectTimeoutTest.java::aNameServerThatDoesNotAnswer",
    "copy.stall.timeout.ms": f"{_JAVA}CopyTest.java::aSilentBridgeIsAStall",
    "copy.progress.timeout.ms": f"{_JAVA}CopyTest.java::heartbeatsKeepACopyAliveUntilNothingChanges",
    "fetch.first.byte.timeout.ms": f"{_JAVA}FetchTest.java::theFirstBytesHaveADeadline",
    "fetch.frame.timeout.ms": f"{_JAVA}FetchTest.java::furtherFramesHaveADeadline",
    "delete.timeout.ms": f"{_JAVA}DeleteAndLifecycleTest.java::deleteFailsFast",
    "rebuild.timeout.ms": f"{_JAVA}RebuildTest.java::theTimeIsForTheOutageNotForEachRead",
}
