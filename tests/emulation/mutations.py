"""Mistakes to plant in the kernels: one changed place per mutant, found by scanning the sources."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

# Which files are compiled for a mutant, and on which cases it runs: no more than show the mistake.
FAST = (("layernorm_bfloat16.hip",), ("forward", "bfloat16"))
EXACT = (("layernorm_float32.hip",), ("forward", "float32"))
GENERAL = (("layernorm_kernel.hip", "layernorm_backward_kernel.hip"), ("float64",))
BACKWARD = (("layernorm_backward_float32.hip",), ("backward", "float32"))
BACKWARD16 = (("layernorm_backward_bfloat16.hip",), ("backward", "bfloat16"))
BOTH = (("layernorm_float32.hip", "layernorm_backward_float32.hip"), ("float32",))

# Files with device code, and what to do to see a mistake in them.
FILES = {
    r"gpu/layernorm_\w*kernel\.hip": GENERAL,
    r"gpu/partial_sums\.hip": (("partial_sums.hip",), ("backward", "float32")),
    r"gpu/handover\.hip": (("handover.hip",), ("backward", "float32")),
    r"gpu/parameter_copies\.hip": (("parameter_copies.hip",), ("forward", "bfloat16")),
    r"gpu/reduction\.hpp": GENERAL,
    r"gpu/(backward|gradient)_\w+\.hpp": BACKWARD,
    r"gpu/gpu_runtime\.hpp": BOTH,
    r"gpu/(block|lanes|split)_kernel\.hpp": FAST,
    r"gpu/few_rows_kernel\.hpp": EXACT,  # rows of several waves that receive messages
    r"gpu/(segment|segment_tree|handover)\.hpp": FAST,
    r"gpu/parts\.hpp": EXACT,
    r"gpu/unaligned\.hpp": FAST,
    r"math/layer_norm\.hpp": EXACT,
}


@dataclass(frozen=True)
class Mistake:
    """A way to go wrong: every match of `pattern` in code is a place to make it."""

    name: str
    pattern: str
    replacement: str
    wave: int = 64
    plan: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # instead of the file's


WAVE = r"(?<=threadIdx\.x [%/] )kWave\b|(?<=blockDim\.x / )kWave\b"
AGENT, WORKGROUP = "__HIP_MEMORY_SCOPE_AGENT", "__HIP_MEMORY_SCOPE_WORKGROUP"

MISTAKES = [
    Mistake("barrier removed", r"__syncthreads\(\);(?!\n#pragma unroll 1)", ""),
    Mistake("barrier removed", r"__syncthreads\(\);(?=\n#pragma unroll 1)", "", wave=32),
    Mistake("wave taken for 32", WAVE, "32"),
    Mistake("wave taken for 64", WAVE, "64", wave=32),
    Mistake("a column too many", r"(?<=col) < (?=(a\.)?cols\b)", " <= "),
    Mistake("last column missed", r"(?<=col < )((?:a\.)?cols)\b", r"\1 - 1"),
    Mistake("a pack too many", r"k \* kLanes < left_", "k * kLanes <= left_"),
    Mistake("padding added up", r"(?:columns_\.)?holds\(k\) \? (first|second) : 0\.0f", r"\1"),
    Mistake("row stride dropped", r"\ba\.(grad_output_)?row_stride;", "a.cols;"),
    Mistake("row stride dropped", r"(?<=row \* )(grad_output_)?row_stride_", "cols_"),
    Mistake(
        "slot not written", r"if \(lane == 0\) (?=(?:slots_?|scaled)\[)", "if (threadIdx.x == 0) "
    ),
    Mistake("slot not written", r"(?<=threadIdx\.x) % kWave(?= == 0\) slots\(\))", ""),
    Mistake("slot read unwritten", r"part < waves \? (.*) : T\(0\)", r"\1"),
    Mistake("eps dropped", r"\(variance \+ scaled_eps\)", "(variance)"),
    Mistake("mean not corrected", r"const T tail = s1 \* inverse_n;", "const T tail = T(0);"),
    Mistake("squares not corrected", r"(?:std::)?fma\(-s1, tail, s2\)", "s2"),
    Mistake("large rows not rescued", r"return Limits<T>::shrink;", "return T(1);"),
    Mistake("small rows not rescued", r"lost \? Limits<T>::grow : T\(1\)", "T(1)"),
    Mistake("wrong count of a merge", r"a\.count \+ b\.count", "a.count"),
    Mistake("wrong weight in a merge", r"rough_quotient\(b_count,.*\);", "T(0.5);"),
    Mistake("wrong weight in a merge of equals", r"T\(0\.5\)(?= : rough)", "T(0.25)"),
    Mistake("another row's sum", r"\(is_upper \? even : odd\)", "(is_upper ? odd : even)"),
    Mistake("another row's shift", r"threadIdx\.x % kRows == u", "false"),
    Mistake("statistics beyond the last row", r"own_row < a\.rows", "true"),
    Mistake("weights of another pack", r"first \+ i, w\[i\]", "first, w[i]"),
    Mistake("merged with itself", r"is_lower \? other : mine", "mine"),
    Mistake("a row announced twice", r"(?<=first \+ 1 \+ )(?=add_shared_word)", "0 * "),
    Mistake("messages of other pieces", r"(?<=attempt, )wave \* kWave", "0"),
    Mistake("part not ended", r"if \(part\.ends_with\(attempt\)\) return;", ""),
    Mistake("part not ended", r"= part\.ends_with\(0\);", "= false;"),
    Mistake("not in turn", r"launch_in_turn\(stream, \[&\] \{", "[](auto f) { f(); }([&] {"),
    Mistake(
        "groups of aligned rows",
        r"resident_split_blocks<Element, Unaligned, kIndex>",
        "[] { return 99; }",
    ),
    Mistake("last part missed", r"launch\(Part::last\(\)\);", ""),
    Mistake("second attempt missed in parts", r"attempt < attempts", "attempt < 1"),
    Mistake("a part's messages not sent", r"\(1u \| kEnds\)", "kEnds"),
    Mistake("row not scaled", r"if \(attempt == 0\) segment\.multiply\(scale\);", ""),
    Mistake("half of a message not sent", r"store_shared_word\(&slot->tail_and_count,.*\);", ""),
    Mistake("half of the sums not sent", r"store_shared_word\(&slot->h_x0,.*\);", ""),
    Mistake("sums not cleared", r"packs_\[i\] = Pack\{\};", ";"),
    Mistake("rows beyond the last kept", r"if \(row < a\.rows\) (?=segment\.finish)", ""),
    Mistake("rows beyond the last kept", r"exist\[u\] = rows\[u\] < a\.rows", "exist[u] = true"),
    Mistake("rounding of the mean kept", r"-average\.x0(?=\);)", "0 * average.x0"),
    Mistake("a group's sums missed", r"(?<=i < )groups(?=; i \+= lanes)", "groups - 1"),
    Mistake("workspace not filled", r"launch_fill\(workspace, .*\);", ""),
    Mistake("last message not filled", r"i < count\) words", "i < count - 1) words"),
    Mistake("weights copied for biases", r"= bias\[col\]", "= weight[col]"),
    Mistake("sums of one lane alone", r" \+ pack % kWave;", ";", wave=32),
    Mistake("sums beyond the row", r"min\(earlier \+ .*, block_packs\)", "block_packs", wave=32),
    Mistake("atomic for the block alone", rf"(?<=__ATOMIC_RELAXED, ){AGENT}(?=\))", WORKGROUP),
    Mistake("plain store", r"__hip_atomic_store\(p, word, .*\);", "*p = word;"),
    Mistake("plain load", r"return __hip_atomic_load\(p, .*\);", "return *p;"),
    Mistake("rows beyond the last written", r"row < a\.rows(?=\);)", "true"),
    # Rows that do not start at a pack, between lanes: only waves of 32 do that.
    Mistake("shifted by words alone", r"phase_ % 4 \* 8", "0", wave=32),
    Mistake("next lane's bytes at the end", r"is_last.* \? border.* : (next;)", r"\1", wave=32),
    Mistake("own pack instead of next", r"lane_ == 0 \? after : own", "own", wave=32),
    Mistake("own pack instead of previous", r"is_end \? before : own", "own", wave=32),
    Mistake("numbers beyond the end", r"\.words\[i\] : 0;", ".words[i] : own;", wave=32),
    Mistake("start not put in place", r"if \(lane_ == 0\) packs\[0\] = border;", "", wave=32),
    Mistake("bytes before a row read", r" && !is_edge(?=;)", "", wave=32),
    Mistake("bytes before a row written", r" && !is_edge(?=\))", "", wave=32),
    Mistake("ends not written", r"store_ends<kFirstTaken>\(packs.*;", "", wave=32),
    Mistake("an element of the ends missed", r"lane_ >= kSize\)", "lane_ >= kSize - 1)", wave=32),
    Mistake("ends of the wrong array", r"kGathers \? kRole : 0", "0", 32, BACKWARD16),
    Mistake(
        "columns of the wrong array", r"\b3 \* kRole \+ lane", "2 * kRole + lane", 32, BACKWARD16
    ),
]


@dataclass(frozen=True)
class Mutant:
    mistake: Mistake
    path: Path  # below src
    before: str
    after: str

    @property
    def units(self) -> tuple[str, ...]:
        """The kernel files to compile."""
        return (self.path.name,) if self.path.suffix == ".hip" else self._plan()[0]

    @property
    def cases(self) -> tuple[str, ...]:
        """Arguments of the driver."""
        return self._plan()[1]

    def _plan(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.mistake.plan is not None:
            return self.mistake.plan
        return next(v for k, v in FILES.items() if re.fullmatch(k, self.path.as_posix()))

    def diff(self) -> str:
        lines = (self.before.splitlines(keepends=True), self.after.splitlines(keepends=True))
        return "".join(difflib.unified_diff(*lines, str(self.path), str(self.path), n=1))

    def summary(self) -> str:
        line = next(x for x in self.diff().splitlines()[3:] if x.startswith("-"))
        return f"{self.mistake.name}: {self.path.name}: {line[1:].strip()}"


def is_comment(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 :].lstrip().startswith("//")


def mutants(src: Path) -> list[Mutant]:
    """One mutant per mistake and place. A mistake that fits nowhere is a mistake in this list."""
    files = sorted(path for path in src.rglob("*.h*p"))
    names = {path: path.relative_to(src) for path in files}
    found = []
    for mistake in MISTAKES:
        count = len(found)
        for path, name in names.items():
            if not any(re.fullmatch(pattern, name.as_posix()) for pattern in FILES):
                continue
            text = path.read_text()
            for match in re.finditer(mistake.pattern, text):
                if is_comment(text, match.start()):
                    continue
                changed = text[: match.start()] + match.expand(mistake.replacement)
                found.append(Mutant(mistake, name, text, changed + text[match.end() :]))
        if len(found) == count:
            raise LookupError(f"{mistake.name}: {mistake.pattern!r} matches nothing")
    return found
