"""Which directories are on a file system of another machine, where locks and mapped files are not shared."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
    ]
)


def remote_type(directory: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system of a directory that is there, if it is one of another machine; else nothing.

    Where the kernel does not tell, nothing is found.
    """
    status = os.stat(directory)
    wanted = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            place, _, described = line.partition(" - ")
            fields = place.split()
            if len(fields) > 2 and fields[2] == wanted:
                kind = described.split(" ", 1)[0]
                return kind if kind in REMOTE else ""
    return ""
