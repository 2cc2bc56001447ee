"""A real S3 server: versitygw over a directory. Objects survive when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from harness.patience import Patience
from harness.ports import free_port
from harness.tools import SERVERS, needs

PROGRAM = SERVERS / "versitygw"
ACCESS, SECRET, REGION = "headwater", "headwater-secret", "us-east-1"
BUCKET = "headwater"
START_SECONDS = 30.0


class S3Server(AbstractContextManager["S3Server"]):
    """One server on a free port with one bucket. Leaving the block ends it; `kill` and `start` simulate an outage."""

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        needs("versitygw: run scripts/setup-tools s3", PROGRAM.exists())
        self.directory = directory
        self._options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.directory / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that a process needs to reach the server, with the names that every S3 client knows."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [str(PROGRAM), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet", "--keep-alive"]
        command += [*self._options, "posix", str(self.directory / "buckets")]
        own = {**os.environ, "ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        with (self.directory / "s3.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=own)
        patience = Patience(START_SECONDS)
        while not self._answers():
            if self.process.poll() is not None or patience.ended:
                raise RuntimeError(f"versitygw does not serve: {(self.directory / 's3.log').read_text()[-2000:]}")
            time.sleep(0.02)  # polls for a state that the loop checks; nothing counts on its length

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/", timeout=1):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def kill(self) -> None:
        """Begin an outage: kill the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Pause the process: connections stay open, and it does not answer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
