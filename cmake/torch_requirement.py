"""The wheel's requirement on torch: the minor version of the installed one, which it links.

scikit-build-core asks for it before anything is compiled, so that a missing torch is an error in
seconds. A static requirement would let pip fetch gigabytes first, of a version that may differ.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OLDEST_TORCH = (2, 11)

_FIND_TORCH = """
import sys
from importlib.util import find_spec
sys.path[:1] = sys.path[:1] if sys.path[0] else []
print(find_spec('torch').submodule_search_locations[0])
"""

_NO_TORCH = """
simple-layernorm links the torch that is installed, and {python} has none.
  torch is not installed yet: install it first, version {oldest} or later (pip install torch).
  torch is installed: this build runs isolated from it. Build without isolation:
      pip install "scikit-build-core>=1.1" ninja
      pip install --no-build-isolation .       (uv pip install --no-build-isolation .)
      python -m build --no-isolation           (uv build --no-build-isolation)
"""


def installed_torch() -> str | None:
    """Version of the torch that the running Python has, found without importing it.

    pip hides the installed packages from a build by PYTHONPATH, which -E ignores.
    """
    for flags in ([], ["-E"]):
        answer = subprocess.run(
            [sys.executable, *flags, "-c", _FIND_TORCH], capture_output=True, text=True, cwd="/"
        )
        if answer.returncode == 0:
            text = (Path(answer.stdout.strip()) / "version.py").read_text(encoding="utf-8")
            match = re.search(r"__version__ = '([^']+)'", text)
            return match.group(1) if match else None
    return None


class TorchRequirement:
    """A provider as [[tool.dynamic-metadata]] expects it."""

    def __init__(self) -> None:
        self._state = "wheel"

    def build_state(self, state: str) -> None:
        self._state = state

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True}

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, list[str]]:
        oldest = ".".join(map(str, OLDEST_TORCH))
        if self._state == "sdist":  # sources fit any torch
            return {"dependencies": [f"torch>={oldest}"]}
        version = installed_torch()
        if version is None:
            sys.exit(_NO_TORCH.format(python=sys.executable, oldest=oldest))
        major, minor = (int(part) for part in version.split(".")[:2])
        if (major, minor) < OLDEST_TORCH:
            sys.exit(
                f"simple-layernorm: expected torch {oldest} or later in {sys.executable}, "
                f"but got {version}; pip install --upgrade torch"
            )
        return {"dependencies": [f"torch=={major}.{minor}.*"]}
