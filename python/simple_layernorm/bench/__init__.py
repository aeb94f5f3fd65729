"""The benchmark: `python -m simple_layernorm bench`.

cases x contenders -> measure (check, then timing beside the limit) -> store -> table, plot, bars.
"""

from simple_layernorm.bench.command import run
from simple_layernorm.bench.options import add_arguments

__all__ = ["add_arguments", "run"]
