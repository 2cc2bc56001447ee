"""Files in memory for pyiceberg's readers and writers.

The follower fetches files from the object store before pyiceberg reads them, and stores them after pyiceberg has
written them. So pyiceberg does no I/O.
"""

from __future__ import annotations

import io
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT


class BytesInput(InputFile):
    """A file that was fetched."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._data)


class _Sink(io.BytesIO):
    """Keeps its bytes when it is closed."""

    def __init__(self, target: BytesOutput) -> None:
        super().__init__()
        self._target = target

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._target.keep(self.getvalue())
        super().close()


class BytesOutput(OutputFile):
    """A file that is about to be stored."""

    def __init__(self, location: str, files: dict[str, bytes]) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._files[self.location])

    def exists(self) -> bool:
        return self.location in self._files

    def to_input_file(self) -> InputFile:
        return BytesInput(self.location, self._files[self.location])

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Sink(self)

    def keep(self, data: bytes) -> None:
        self._files[self.location] = data


class MemoryFiles(FileIO):
    """A handful of files by location."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(EMPTY_DICT)
        self.files = files

    def new_input(self, location: str) -> InputFile:
        return BytesInput(location, self.files[location])

    def new_output(self, location: str) -> BytesOutput:
        return BytesOutput(location, self.files)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.files.pop(location if isinstance(location, str) else location.location, None)
