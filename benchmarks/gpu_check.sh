#!/usr/bin/env bash
# Checks Stepduel on a machine with a CUDA device, in under 8 minutes: real offload, real copies, real GPU times.
#
#   benchmarks/gpu_check.sh                      the default model, 1 rank
#   benchmarks/gpu_check.sh --ranks 2            on two GPUs
#   benchmarks/gpu_check.sh --collector kineto   without Nsight Systems
#
# Ends with 0 when every check holds, 1 when one does not, 2 without CUDA, 4 when a launch failed.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -z "${PYTHON:-}" ]]; then
  make --silent setup
  PYTHON=.venv/bin/python
fi
exec "$PYTHON" benchmarks/gpu_check.py "$@"
