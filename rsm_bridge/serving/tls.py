"""TLS of the gRPC port. Certificates are read again when a file changes, without a restart.

The files are compared before each handshake, by modification time and size. A pair that cannot be read leaves the old
one in place and says so in the log; at start it is an error.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import structlog

from rsm_bridge.config.settings import TlsSettings
from rsm_bridge.config.tls_pair import check_pair
from rsm_bridge.errors import SettingsError

Stamp = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Certificates:
    """The files and what was read from them last."""

    settings: TlsSettings
    log: structlog.typing.FilteringBoundLogger
    _stamp: Stamp = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files.

        Raises:
            SettingsError: a file cannot be read or is not PEM.
        """
        if self.settings.everybody_may_write:
            text = "any certificate of tls.client_ca_file may copy, read and delete every topic: set tls.clients"
            self.log.warning(text)
        self._stamp = self._current_stamp()
        try:
            initial = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"tls: {error}") from error
        return grpc.dynamic_ssl_server_credentials(
            initial,
            self._changed,  # type: ignore[arg-type]  # None is allowed and means: no change
            require_client_authentication=self.settings.client_ca_file is not None,
        )

    def _files(self) -> list[Path]:
        files = [self.settings.certificate_file, self.settings.key_file]
        return files if self.settings.client_ca_file is None else [*files, self.settings.client_ca_file]

    def _current_stamp(self) -> Stamp:
        stamps = []
        for path in self._files():
            with contextlib.suppress(OSError):
                status = path.stat()
                stamps.append((status.st_mtime_ns, status.st_size))
        return tuple(stamps)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        contents = [path.read_bytes() for path in self._files()]
        for path, content, mark in zip(self._files(), contents, (b"CERTIFICATE", b"KEY", b"CERTIFICATE"), strict=False):
            if b"-----BEGIN " not in content or mark not in content:
                raise ValueError(f"{path} is not a PEM file of a {mark.decode().lower()}")
        check_pair(self.settings)
        client_ca = contents[2] if len(contents) > 2 else None
        return grpc.ssl_server_certificate_configuration([(contents[1], contents[0])], client_ca)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            stamp = self._current_stamp()
            if stamp == self._stamp:
                return None
            try:
                configuration = self._read()
            except (OSError, ValueError) as error:
                self.log.error("certificates changed and cannot be used, the old ones stay", error=str(error))
                return None
            self._stamp = stamp
            self.log.info("certificates read again")
            return configuration
