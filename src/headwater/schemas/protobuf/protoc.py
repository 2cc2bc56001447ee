"""The program of the child process that compiles .proto files: it limits itself and runs protoc.

It imports nothing of this package, so that it starts fast and runs without the installed packages' start-up files.
"""

import resource
import sys

MAX_MEMORY = 2 << 30
MAX_SECONDS = 20
MAX_OUTPUT = 64 << 20


def compile_file(directory: str, well_known: str, name: str, output: str) -> int:
    """Compile a file of a directory with all that it imports. The answer is protoc's exit code."""
    from grpc_tools import _protoc_compiler

    arguments = [
        "protoc",
        f"-I{directory}",
        f"-I{well_known}",
        "--include_imports",
        "--include_source_info",
        f"--descriptor_set_out={output}",
        name,
    ]
    code: int = _protoc_compiler.run_main([argument.encode() for argument in arguments])
    return code


def main() -> int:
    """Arguments: where packages are, the directory, protoc's own types, the file, the output."""
    packages, directory, well_known, name, output = sys.argv[1:]
    for kind, most in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CPU, MAX_SECONDS),
        (resource.RLIMIT_FSIZE, MAX_OUTPUT),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    sys.path.insert(0, packages)
    return compile_file(directory, well_known, name, output)


if __name__ == "__main__":
    sys.exit(main())
