"""What the emulator lacks of Google's XML interface, by which obstore writes and lists, over its JSON interface.

Conditions on generations are decided by the emulator. Parts of a multipart upload are held here until it is completed.
https://cloud.google.com/storage/docs/xml-api/overview
"""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.support.http_loop import AnyMethod, served

_Reply = tuple[int, list[tuple[str, str]], bytes]
_NOT_PASSED_ON = frozenset({"connection", "date", "transfer-encoding"})
_CONDITION = "x-goog-if-generation-match"


@dataclass
class GcsXml:
    """`conditions` counts writes that named a generation, `refused` those of them that did not hold."""

    emulator_port: int
    port: int = 0
    conditions: int = 0
    refused: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _parts: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def store_options(self) -> dict[str, str]:
        """`store.options` of a bridge: a key file that names this server and asks nobody for a token."""
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"service_account_key": json.dumps(account), "allow_http": "true"}

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> _Reply:
        """What the emulator says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.emulator_port, timeout=30)
        try:
            connection.request(method, path, body or None, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()

    def insert(self, bucket: str, name: str, body: bytes, generation: str | None) -> _Reply:
        """One object, if it has this generation; `0`: if there is none."""
        query = {"uploadType": "media", "name": name}
        if generation is not None:
            self.conditions += 1
            query["ifGenerationMatch"] = generation
        connection_headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        status, _, said = self.ask(
            "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", body, connection_headers
        )
        self.refused += status == 412
        if status != 200:
            return status, [], said
        stored = json.loads(said)
        return 200, [("ETag", f'"{stored["etag"]}"'), ("x-goog-generation", stored["generation"])], b""

    def begin(self, bucket: str, name: str) -> _Reply:
        """A multipart upload."""
        upload = f"upload-{next(self._numbers)}"
        self._parts[upload] = {}
        names = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{upload}</UploadId>"
        return _xml("InitiateMultipartUploadResult", names)

    def part(self, upload: str, number: int, body: bytes) -> _Reply:
        """One of its parts."""
        self._parts[upload][number] = body
        return 200, [("ETag", f'"{upload}-{number}"')], b""

    def complete(self, bucket: str, name: str, upload: str) -> _Reply:
        """All of them as one object."""
        parts = self._parts.pop(upload)
        status, headers, said = self.insert(bucket, name, b"".join(parts[number] for number in sorted(parts)), None)
        if status != 200:
            return status, headers, said
        status, _, said = _xml(
            "CompleteMultipartUploadResult", f"<Key>{escape(name)}</Key><ETag>{headers[0][1]}</ETag>"
        )
        return status, headers, said

    def abort(self, upload: str) -> _Reply:
        """Forgets its parts."""
        self._parts.pop(upload, None)
        return 204, [], b""

    def listing(self, bucket: str, query: dict[str, str]) -> _Reply:
        """A page of names; `start-after` is exclusive, the JSON interface's `startOffset` inclusive."""
        wanted: dict[str, str] = {name: query[name] for name in ("prefix", "delimiter") if name in query}
        if "start-after" in query:
            wanted["startOffset"] = f"{query['start-after']}\0"
        if "continuation-token" in query:
            wanted["pageToken"] = query["continuation-token"]
        status, _, said = self.ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode(wanted)}")
        if status != 200:
            return status, [], said
        page = json.loads(said)
        rows = "".join(_row(item) for item in page.get("items", []))
        rows += "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in page.get("prefixes", [])
        )
        if token := page.get("nextPageToken"):
            rows += f"<NextContinuationToken>{escape(token)}</NextContinuationToken>"
        return _xml("ListBucketResult", rows)


def _row(item: dict[str, Any]) -> str:
    return (
        f"<Contents><Key>{escape(item['name'])}</Key><Size>{item['size']}</Size>"
        f'<LastModified>{item["updated"]}</LastModified><ETag>"{item["etag"]}"</ETag></Contents>'
    )


def _xml(root: str, inside: str) -> _Reply:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{inside}</{root}>'
    return 200, [("Content-Type", "application/xml")], text.encode()


class _Handler(AnyMethod):
    front: GcsXml

    def serve(self) -> None:
        status, headers, body = self._reply()
        kept = [
            (name, value) for name, value in headers if name.lower() not in ("connection", "date", "transfer-encoding")
        ]
        self.answer(status, kept, body)

    def _reply(self) -> _Reply:
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        front, method, body = self.front, self.command, self.body()
        match method:
            case "PUT" if "uploadId" in query:
                return front.part(query["uploadId"], int(query["partNumber"]), body)
            case "PUT":
                return front.insert(bucket, name, body, self.headers.get(_CONDITION))
            case "POST" if "uploads" in query:
                return front.begin(bucket, name)
            case "POST":
                return front.complete(bucket, name, query["uploadId"])
            case "DELETE" if "uploadId" in query:
                return front.abort(query["uploadId"])
            case "GET" if not name:
                return front.listing(bucket, query)
        passed = {key: value for key, value in self.headers.items() if key.lower() in ("range", "content-type")}
        # The emulator's own XML interface. It tells hosts apart by their names.
        passed["Host"] = f"127.0.0.1:{front.emulator_port}"
        return front.ask(method, f"/{bucket}/{quote(name, safe='')}", headers=passed)


@contextmanager
def gcs_xml(emulator_port: int) -> Iterator[GcsXml]:
    """The front on a free port of loopback."""
    front = GcsXml(emulator_port)
    with served(type("Handler", (_Handler,), {"front": front})) as port:
        front.port = port
        yield front
