#!/usr/bin/env bash
# usage: cpu_symbols_test.sh OBJECT...
# A level's object gives the linker one name, its table. Any other, a weak copy of an inline function
# above all, could be chosen for the whole program and bring a newer instruction to an older machine.
set -euo pipefail
status=0
for object in "$@"; do
  names=$(nm -C --defined-only --extern-only --format=just-symbols "$object" | sort -u |
    grep -v -e '^__odr_asan\.' -e '^DW\.ref\.')  # data of AddressSanitizer and of exceptions
  if ! [[ $names =~ ^simple_layernorm::cpu::k[A-Za-z0-9]+Kernels$ ]]; then
    echo "$object defines more than its table:"
    echo "$names"
    status=1
  fi
done
exit $status
