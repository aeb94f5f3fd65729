"""What the emulation cannot see, for it runs one kernel after the other."""

import re

from emulated_driver import PROJECT

# What neither reads nor writes memory.
DECLARATIONS = (
    "if constexpr",
    "constexpr",
    "using",
    "__shared__",
    "SIMPLE_LAYERNORM_DYNAMIC_SHARED",
)


def test_every_kernel_waits_for_earlier_work_before_it_does_anything_else():
    kernels = []
    for path in sorted((PROJECT / "src" / "gpu").glob("*.h*p")):
        for kernel in path.read_text().split("\n__global__ ")[1:]:
            signature, body = kernel.split(" {\n", 1)
            name = re.findall(r"(\w+)\((?:LayerNorm|Gradient|std::)", signature)[0]
            statements = (line.strip() for line in body.split("\n"))
            first = next(s for s in statements if not s.startswith(DECLARATIONS))
            assert first == "await_earlier_work();", f"{path.name}: {name}: {first}"
            kernels.append(name)
    assert len(kernels) >= 10
