"""An Azure Blob Storage emulator: azurite over a directory."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from harness.patience import Patience
from harness.ports import free_port
from harness.tools import SERVERS, needs

PROGRAM = SERVERS / "azurite/node_modules/azurite/dist/src/blob/main.js"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The published key that every azurite has."""
VERSION = "2023-11-03"
CONTAINER = "headwater"
START_SECONDS = 60.0


class AzureServer(AbstractContextManager["AzureServer"]):
    """One emulator on a free port with one container. Leaving the block ends it."""

    def __init__(self, directory: Path) -> None:
        needs("node", shutil.which("node") is not None)
        needs("azurite: run scripts/setup-tools azurite", PROGRAM.exists())
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        node = shutil.which("node")
        assert node is not None, "node is not on PATH"
        command = [node, str(PROGRAM), "--location", str(self.directory), "--blobHost", "127.0.0.1"]
        command += ["--blobPort", str(self.port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        with (self.directory / "azurite.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        patience = Patience(START_SECONDS)
        while not self._made_container():
            if self.process.poll() is not None or patience.ended:
                raise RuntimeError(f"azurite does not serve: {(self.directory / 'azurite.log').read_text()[-2000:]}")
            time.sleep(0.05)  # polls for a state that the loop checks; nothing counts on its length
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def url(self) -> str:
        return f"az://{CONTAINER}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that a process needs to reach the server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def _made_container(self) -> bool:
        """Create the container with a request that is signed with the account's key."""
        date = email.utils.formatdate(usegmt=True)
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        request = urllib.request.Request(
            f"{self.endpoint}/{CONTAINER}?restype=container", method="PUT", headers={**headers, "Content-Length": "0"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"azurite makes no container: {error.code} {error.read()[:500]!r}") from error
        except OSError:
            return False
