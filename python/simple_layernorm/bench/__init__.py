"""Measures this library beside torch, other norm libraries and what memory allows.

Every case goes the same way: check against float64, then time all contenders in turns, next to a
copy or an add of the same tensors; then the results file, the table, the picture and the bars.
"""

from simple_layernorm.bench.command import run
from simple_layernorm.bench.options import add_arguments

__all__ = ["add_arguments", "run"]
