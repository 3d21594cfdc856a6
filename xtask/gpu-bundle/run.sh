#!/bin/sh
# run.sh SUITE [--limit SECONDS]: tests and benchmarks on a machine with GPUs. See run.py.
exec python3 -B "$(dirname "$0")/run.py" "$@"
