"""Whether a certificate and its key can be used, before anything relies on them."""

from __future__ import annotations

import ssl

from rsm_bridge.config.settings import Settings, TlsSettings
from rsm_bridge.errors import SettingsError


def check_pair(settings: TlsSettings) -> None:
    """Whether certificate and key belong together; gRPC itself finds out at the first handshake.

    Raises:
        OSError, ValueError: naming both files; they do not, or one cannot be used.
    """
    names = f"tls.certificate_file {settings.certificate_file} and tls.key_file {settings.key_file}"
    try:
        # No password is asked for: an encrypted key is an error.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: "")
    except FileNotFoundError as error:
        gone = [str(path) for path in (settings.certificate_file, settings.key_file) if not path.exists()]
        which = " and ".join(gone) or "one of them"
        raise ValueError(f"{names} cannot be used: {which} {'are' if len(gone) > 1 else 'is'} not there") from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH" or error.reason == "KEY_TYPE_MISMATCH":
            raise ValueError(f"{names} do not belong together: the key is another certificate's") from error
        raise ValueError(f"{names} cannot be used: {error.reason or error}") from error


def require_pair(settings: Settings) -> None:
    """The same before anything is started. Raises SettingsError; nothing to look at without `tls`."""
    if settings.tls is None:
        return
    try:
        check_pair(settings.tls)
    except (OSError, ValueError) as error:
        raise SettingsError(f"tls: {error}") from error
