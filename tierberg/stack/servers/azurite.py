"""Microsoft's emulator of Azure Blob Storage as a local process, from the npm registry, fetched once into `build/`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
from email.utils import formatdate
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tierberg.stack.command import appearing, run_to_end
from tierberg.stack.errors import StackError
from tierberg.stack.limits import EMULATOR_START_S, FETCH_NPM_S, S3_REQUEST_S
from tierberg.stack.paths import BUILD
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

VERSION = "3.37.0"
_API_VERSION = "2021-08-06"
_FOLDER = BUILD / f"azurite-{VERSION}"


def program() -> Path:
    """The server's script for Node.js. The first call fetches it.

    Raises:
        StackError: npm is not there, or could not fetch it.
    """
    script = "node_modules/azurite/dist/src/blob/main.js"
    if _FOLDER.is_dir():
        return _FOLDER / script
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise StackError("Node.js with npm is needed for the Azure server Azurite")
    with appearing(_FOLDER) as folder:
        argv = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        run_to_end("fetch Azurite", [*argv, f"azurite@{VERSION}"], seconds=FETCH_NPM_S)
    return _FOLDER / script


class Azurite:
    """One server on loopback, with the one account that every such server has.

    Attributes:
        account: its name.
        key: known to everybody, by Microsoft's documentation.
    """

    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, folder: Path) -> None:
        """Nothing is written or started yet."""
        (self.port,) = free_ports(1)
        argv = ["node", str(program()), "--blobHost", LOOPBACK, "--blobPort", str(self.port), "--location", str(folder)]
        argv += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        self.process = ServerProcess("azurite", argv, folder / "azurite.log", cwd=folder)
        self._folder = folder

    @property
    def endpoint(self) -> str:
        """URL of the account."""
        return f"http://{LOOPBACK}:{self.port}/{self.account}"

    def url(self, container: str) -> str:
        """The container as Iceberg's clients name it."""
        return f"abfss://{container}@{self.account}.dfs.core.windows.net"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within EMULATOR_START_S.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.process.start()
        wait_for("Azurite to answer", self._answers, EMULATOR_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def make_container(self, name: str) -> None:
        """An empty container.

        Raises:
            StackError: the server refuses.
        """
        date = formatdate(usegmt=True)
        # Shared Key authorization: of all standard headers, a request like this one has none.
        signed = "\n".join(["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_API_VERSION}"])
        signed += f"\n/{self.account}/{self.account}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.key), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _API_VERSION,
            "Authorization": f"SharedKey {self.account}:{base64.b64encode(digest).decode()}",
        }
        request = Request(f"{self.endpoint}/{name}?restype=container", method="PUT", headers=headers)
        try:
            urlopen(request, timeout=S3_REQUEST_S).close()
        except URLError as error:
            raise StackError(f"cannot make the container {name}: {error}") from error

    def store_options(self) -> dict[str, str]:
        """`store.options` of a bridge."""
        keys = {"account_name": self.account, "account_key": self.key}
        return {**keys, "endpoint": self.endpoint, "allow_http": "true"}

    def catalog_properties(self) -> dict[str, str]:
        """What PyIceberg is given to read and write table metadata here."""
        address = f"{LOOPBACK}:{self.port}"
        return {
            "adls.account-name": self.account,
            "adls.account-key": self.key,
            "adls.blob-storage-authority": address,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-authority": address,
            "adls.dfs-storage-scheme": "http",
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        return accepts(self.port)
