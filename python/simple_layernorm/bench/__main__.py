"""The benchmark on its own: `python -m simple_layernorm.bench`."""

import argparse
import sys

from simple_layernorm.bench import add_arguments, run
from simple_layernorm.errors import UserError

parser = argparse.ArgumentParser(prog="python -m simple_layernorm.bench")
add_arguments(parser)
try:
    sys.exit(run(parser.parse_args()))
except UserError as error:
    parser.exit(2, f"{parser.prog}: {error}\n")
