"""The command's options, and the questions about this machine that they raise."""

from __future__ import annotations

import argparse
import importlib.util
import math
from pathlib import Path

from simple_layernorm.bench.cases import DTYPES, GROUPS
from simple_layernorm.bench.contenders import FACTORIES, OURS
from simple_layernorm.errors import UserError

PLANS = {
    "native": "what this device is given",
    "portable": "what an AMD device would be given: 64 KiB of shared memory, no NVIDIA feature",
    "general": "the kernels for any length: a block per row, read from memory for each pass",
}


def _size(text: str) -> tuple[int, int]:
    rows, times, cols = text.lower().partition("x")
    if not times or not rows.isdigit() or not cols.isdigit() or int(rows) < 1 or int(cols) < 1:
        raise argparse.ArgumentTypeError(f"expected ROWSxCOLS such as 4096x768, but got {text!r}")
    return int(rows), int(cols)


def _count(text: str) -> int:
    """A positive number, also as a power: 2^28."""
    base, power, exponent = text.partition("^")
    try:
        value = round(math.pow(int(base), int(exponent or 1)))
    except (ValueError, OverflowError):
        value = 0
    if value < 1 or bool(power) != bool(exponent):
        raise argparse.ArgumentTypeError(f"expected a positive number, but got {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the benchmark to a command's parser."""
    _what_is_measured(parser.add_argument_group("what is measured"))
    _how(parser.add_argument_group("how"))
    _what_comes_out(parser.add_argument_group("what comes out"))


def _what_is_measured(add: argparse._ArgumentGroup) -> None:
    peers = [name for name in FACTORIES if name != OURS]
    add.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="default: a GPU if torch sees one; cuda is torch's name for AMD GPUs too",
    )
    add.add_argument(
        "--cases",
        nargs="+",
        choices=(*GROUPS, "all"),
        default=["all"],
        metavar="CASE",
        help="; ".join(f"{name}: {group.about}" for name, group in GROUPS.items()),
    )
    add.add_argument(
        "--dtypes",
        nargs="+",
        choices=DTYPES,
        default=["float32", "bfloat16"],
        metavar="DTYPE",
        help=f"of {', '.join(DTYPES)} (input/parameters); default: float32 bfloat16",
    )
    add.add_argument(
        "--peers",
        nargs="*",
        choices=peers,
        metavar="PEER",
        help=f"of {', '.join(peers)}; default: all that can be imported",
    )
    add.add_argument(
        "--cols",
        nargs="+",
        type=_count,
        default=[],
        metavar="COLS",
        help="only these columns; full-size tensors keep their number of elements",
    )
    add.add_argument(
        "--sizes", nargs="+", type=_size, default=[], metavar="ROWSxCOLS", help="only these sizes"
    )
    add.add_argument(
        "--elements",
        type=_count,
        metavar="N",
        help="of a full-size tensor; default: 2^28 on a GPU, 2^23 on the CPU",
    )
    add.add_argument(
        "--threads",
        nargs="+",
        type=_count,
        default=[1],
        metavar="N",
        help="of torch on the CPU, one or several; default: 1",
    )
    add.add_argument(
        "--plan",
        choices=tuple(PLANS),
        default="native",
        help="the GPU's launch plan; " + "; ".join(f"{k}: {v}" for k, v in PLANS.items()),
    )


def _how(add: argparse._ArgumentGroup) -> None:
    add.add_argument(
        "--budget-ms",
        type=_count,
        metavar="MS",
        help="of timing per contender and case; default: 30 on a GPU, 400 on the CPU",
    )
    add.add_argument(
        "--time-limit", type=_count, metavar="SECONDS", help="begin no case after this time"
    )
    add.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: CPU time of the one thread, for a CPU that other processes use too",
    )
    add.add_argument(
        "--allocator",
        choices=("steady", "default"),
        default="steady",
        help="on the CPU, steady restarts the process with an allocator that keeps its pages, "
        "so that page faults of fresh memory stay out of the figures",
    )


def _what_comes_out(add: argparse._ArgumentGroup) -> None:
    add.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="keep the results here; what is there already is not measured again",
    )
    add.add_argument("--plot", type=Path, metavar="FILE.png", help="draw ratios over columns")
    add.add_argument(
        "--compare", type=Path, metavar="OLD.json", help="show what changed against an older file"
    )
    add.add_argument("--list", action="store_true", help="name the cases and end")
    add.add_argument(
        "--check", action="store_true", help="exit status 1 if a cell is below its gate"
    )


def require(package: str, purpose: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{purpose} needs {package}: pip install {package}")
