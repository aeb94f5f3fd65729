"""What the compiler makes of the kernels for AMD devices: registers, memory, instructions."""

import re

import pytest
from device_assembly import ARCHITECTURES, Kernel, build, kernels_of, missing_tool, parse, table

pytestmark = [
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
    pytest.mark.slow,  # an optimising build of every kernel
    pytest.mark.timeout(1800),
]

# Of a compute unit.
MOST_SHARED_BYTES = 64 * 1024

# A shuffle goes through shared memory. Only the moments of a block's waves and of a row's blocks
# are merged by shuffles, four words each, once a row; and sums over 32 of 64 lanes need a swizzle
# each: three for a row of a backward pass, whose loop holds four rows.
MOST_PERMUTES = 12


@pytest.fixture(scope="module")
def all_kernels() -> list[Kernel]:
    return kernels_of(build(ARCHITECTURES))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def kernels(request: pytest.FixtureRequest, all_kernels: list[Kernel]) -> list[Kernel]:
    chosen = [kernel for kernel in all_kernels if kernel.architecture == request.param]
    print(f"\n{request.param}\n{table(chosen)}")
    return chosen


def test_there_are_kernels_of_the_architectures_wave(kernels: list[Kernel]):
    waves = {"gfx90a": 64, "gfx1030": 32}
    assert kernels
    for kernel in kernels:
        assert kernel.metadata["wavefront_size"] == waves[kernel.architecture], kernel.name


def is_known_to_spill(kernel: Kernel) -> bool:
    """Split rows keep more uniform values than there are scalar registers; some of these use
    scratch. Misaligned rows of a backward pass, and few of them, use CDNA's accumulation registers,
    or vector registers for uniform values, no scratch. All others stay within their registers."""
    if kernel.template.endswith("_split"):
        return True
    is_misaligned = "AnyGradients" in kernel.name or (
        "_few_rows<" in kernel.name and "AnyAccess" in kernel.name
    )
    return is_misaligned and kernel.scratch_bytes == 0


def test_no_kernel_spills_registers_or_uses_scratch_but_the_known_ones(kernels: list[Kernel]):
    spilling = [k for k in kernels if k.spills or k.scratch_bytes]
    offenders = [k for k in spilling if not is_known_to_spill(k)]
    assert not offenders, table(offenders)


def test_static_shared_memory_fits_a_compute_unit(kernels: list[Kernel]):
    offenders = [k for k in kernels if k.shared_bytes > MOST_SHARED_BYTES]
    assert not offenders, table(offenders)


# Indices in src/gpu/backward_plan.hpp of shapes that no device with waves of 32 has lanes or
# registers for.
SHAPES_FOR_WAVES_OF_64 = {
    "layer_norm_backward_lanes": {5, 7},
    "layer_norm_backward_block": {1},
    "layer_norm_backward_split": {2},
}


def is_for_other_devices(kernel: Kernel) -> bool:
    """A build for several devices compiles each kernel for all; the plan never chooses this one."""
    wave = kernel.metadata["wavefront_size"]
    if lanes := re.fullmatch(r"layer_norm_forward_lanes<.*, (\d+), (\d+), \d+>", kernel.name):
        return int(lanes[1]) > wave or (int(lanes[1]) < wave and int(lanes[2]) > 4)
    shape = re.fullmatch(r"layer_norm_backward_\w+<.*, (\d+)>", kernel.name)
    others = SHAPES_FOR_WAVES_OF_64.get(kernel.template, set())
    return wave == 32 and shape is not None and int(shape[1]) in others


def test_kernels_for_other_devices_are_compiled_without_code(kernels: list[Kernel]):
    offenders = [k for k in kernels if (len(k.instructions) == 1) != is_for_other_devices(k)]
    assert not offenders, table(offenders)


def most_permutes(kernel: Kernel) -> int:
    """Where each lane finishes one of several rows: per row 9 values to all lanes of its group (the
    shift and the mean in both attempts, the scale, four statistics), and the steps of three sums in
    two attempts over distances from 4 on, which DPP does not have: 4, 8, and 16 for 32 lanes."""
    shape = re.fullmatch(r"layer_norm_forward_lanes<.*, (\d+), \d+, (\d+)>", kernel.name)
    lanes, rows = (int(shape[1]), int(shape[2])) if shape else (1, 1)
    if kernel.template == "layer_norm_forward_split":
        return 2 * 44  # both attempts merge waves, pieces, and pieces beyond those of a wave
    return MOST_PERMUTES if rows == 1 else 9 * rows + (18 if lanes == 32 else 12)


def test_wave_sums_stay_in_the_vector_unit(kernels: list[Kernel]):
    working = [k for k in kernels if not is_for_other_devices(k)]
    summing = [k for k in working if k.template.startswith("layer_norm")]
    moves = {k.name: k.moves_through_shared_memory for k in summing}
    offenders = [k for k in summing if k.dpp == 0 or moves[k.name] > most_permutes(k)]
    assert summing
    assert not offenders, table(offenders)


def test_aligned_rows_move_by_16_bytes(kernels: list[Kernel]):
    working = [k for k in kernels if not is_for_other_devices(k)]
    aligned = [
        k for k in working if "<" in k.name and "Aligned" in k.name and "_lanes<" not in k.name
    ]
    offenders = [k for k in aligned if k.wide_loads == 0 or k.wide_stores == 0]
    assert aligned
    assert not offenders, table(offenders)


def test_the_table_of_a_known_text():
    code = """
<_Z1kv>:
\tv_add_f32_dpp v1, v0, v0 quad_perm:[1,0,3,2] row_mask:0xf // 000000002100: 00000000
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
\tds_bpermute_b32 v1, v0, v1

<_Z5otherv>:
\tglobal_store_dwordx4 v4, v[0:3], s[0:1]
"""
    metadata = """
amdhsa.kernels:
  - .agpr_count:     0
    .group_segment_fixed_size: 1024
    .name:           _Z1kv
    .private_segment_fixed_size: 8
    .sgpr_spill_count: 1
    .vgpr_count:     54
    .vgpr_spill_count: 2
"""
    (kernel,) = parse(code, metadata, "gfx90a")
    assert (kernel.name, kernel.spills, kernel.scratch_bytes) == ("k", 3, 8)
    assert (kernel.dpp, kernel.wide_loads, kernel.wide_stores) == (1, 1, 0)
    assert kernel.moves_through_shared_memory == 1
