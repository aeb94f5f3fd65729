"""The command line: python -m simple_layernorm verify | info | bench."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from simple_layernorm import _C, bench, info, verify
from simple_layernorm.errors import UserError

_COMMANDS = {
    "verify": (verify, "compare this library with torch, on random data or your own"),
    "bench": (bench, "measure beside torch, other norm libraries and what memory allows"),
    "info": (info, "versions, build, devices and their kernels"),
}


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 if all went well, 1 if a check failed, 2 if it could not be made."""
    parser = _Parser(prog="python -m simple_layernorm", description=__doc__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder for -Dsimple_layernorm_DIR=, with which CMake finds the C++ library",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, help_text) in _COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_text, description=module.__doc__)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)

    if arguments.cmake_dir:
        # Beside the compiled module, which an editable install keeps away from this file.
        print(Path(_C.__file__).parent / "share" / "cmake" / "simple_layernorm")
        return 0
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        status: int = arguments.run(arguments)
    except UserError as error:
        print(f"{parser.prog} {arguments.command}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
