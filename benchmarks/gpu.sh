#!/bin/sh
# Training on one GPU, measured: step time, peak memory, tokens per second, the gap of bfloat16 log-probs.
# No network, random weights, under ten minutes; TRL beside it where it is installed (make .venv-trl/.ready).
#   benchmarks/gpu.sh          on a machine with a GPU; writes benchmarks/results.json and benchmarks/gpu.md
#   benchmarks/gpu.sh --dry    tiny sizes on the CPU: does the script run
set -eu
cd "$(dirname "$0")/.."
for python in "${PYTHON:-}" .venv-trl/bin/python .venv/bin/python python3; do
  [ -n "$python" ] && command -v "$python" > /dev/null && break
done
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false WANDB_MODE=disabled
exec "$python" benchmarks/gpu.py "$@"
