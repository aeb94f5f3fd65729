"""Mistakes to plant in the kernels: one changed place per mutant, found by scanning the sources."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

DEVICE_CODE = re.compile(r"\.hip$|(elements|reduction|vector_io|exchange)\.hpp$")
FORMULA = re.compile(r"math/layer_norm\.hpp$")


@dataclass(frozen=True)
class Mistake:
    """A way to go wrong: every match of `pattern` in the files is a place to make it."""

    name: str
    files: re.Pattern[str]
    pattern: str
    replacement: str
    wave: int = 64
    checks: str = "races"


@dataclass(frozen=True)
class Mutant:
    mistake: Mistake
    path: Path  # below src
    before: str
    after: str

    def diff(self) -> str:
        lines = (self.before.splitlines(keepends=True), self.after.splitlines(keepends=True))
        return "".join(difflib.unified_diff(*lines, str(self.path), str(self.path), n=1))

    def summary(self) -> str:
        added = [x[1:].strip() for x in self.diff().splitlines()[2:] if x.startswith("+")]
        removed = [x[1:].strip() for x in self.diff().splitlines()[2:] if x.startswith("-")]
        return f"{self.mistake.name}: {self.path.name}: {(added or removed)[0]}"


MISTAKES = [
    Mistake("barrier removed", DEVICE_CODE, r"__syncthreads\(\);", ""),
    Mistake("wave taken for 32", DEVICE_CODE, r"(?<=[%/*] )kWave\b", "32"),
    Mistake("wave taken for 64", DEVICE_CODE, r"(?<=[%/*] )kWave\b", "64", wave=32),
    Mistake("one column too many", DEVICE_CODE, r"(?<=col) < (?=(a\.)?cols\b)", " <= "),
    Mistake("last column missed", DEVICE_CODE, r"(?<=col < )((?:a\.)?cols)\b", r"\1 - 1"),
    Mistake("row stride dropped", DEVICE_CODE, r"\ba\.(grad_output_)?row_stride\b", "a.cols"),
    Mistake(
        "slot not written", DEVICE_CODE, r"if \(lane == 0\) (?=slots\[)", "if (wave + lane == 0) "
    ),
    Mistake("slot read unwritten", DEVICE_CODE, r"lane < waves \? (.*) : T\(0\)", r"\1"),
    Mistake("eps dropped", FORMULA, r"\(variance \+ scaled_eps\)", "(variance)"),
    Mistake(
        "mean not corrected", FORMULA, r"const T tail = s1 \* inverse_n;", "const T tail = T(0);"
    ),
    Mistake("squares not corrected", FORMULA, r"std::fma\(-s1, tail, s2\)", "s2"),
    Mistake("no rescue", FORMULA, r"return Limits<T>::shrink;", "return T(1);"),
    Mistake("no rescue", FORMULA, r"return lost \? Limits<T>::grow : T\(1\);", "return T(1);"),
]


def mutants(src: Path) -> list[Mutant]:
    """One mutant per mistake and place. A mistake that fits nowhere is a mistake in this list."""
    found = []
    for mistake in MISTAKES:
        count = len(found)
        for path in sorted(src.rglob("*.h*p")):
            name = path.relative_to(src)
            if not mistake.files.search(name.as_posix()):
                continue
            text = path.read_text()
            for match in re.finditer(mistake.pattern, text):
                changed = (
                    text[: match.start()] + match.expand(mistake.replacement) + text[match.end() :]
                )
                found.append(Mutant(mistake, name, text, changed))
        if len(found) == count:
            raise LookupError(f"{mistake.name}: {mistake.pattern!r} matches nothing")
    return found
