#!/usr/bin/env bash
# Tests of the real TransformerEngine on a machine without a GPU: builds an environment (18 minutes on two cores; needs
# the headers of CUDA 13), then runs what of the library works on a CPU, and the fast tests of the core beside it.
#
#     tests/te/real.sh [FOLDER_OF_THE_ENVIRONMENT]
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/.venv-te}
cuda=${CUDA_HOME:-/usr/local/cuda}
version=2.20.2

if [ ! -e "$venv/.ready" ]; then
    python3 -m venv "$venv"
    pip="$venv/bin/pip --quiet --disable-pip-version-check"
    $pip install torch==2.14.1 numpy setuptools wheel ninja pybind11 packaging
    $pip install --no-deps "transformer-engine==$version" "transformer-engine-cu13==$version"
    $pip install pydantic importlib-metadata einops onnxscript nvdlfw-inspect "nvidia-cudnn-frontend>=1.29.0"
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    headers=$site/nvidia/cu13/include:$site/nvidia/cudnn/include:$site/nvidia/nccl/include:$cuda/include
    PATH="$venv/bin:$PATH" NVTE_BUILD_USE_NVIDIA_WHEELS=1 NVTE_FRAMEWORK=pytorch NVTE_PYTORCH_FORCE_BUILD=TRUE \
        MAX_JOBS=${MAX_JOBS:-2} CUDA_HOME=$cuda CPLUS_INCLUDE_PATH=$headers \
        $pip install --no-build-isolation --no-deps --no-binary transformer-engine-torch "transformer-engine-torch==$version"
    $pip install pytest pytest-xdist hypothesis expecttest transformers pluggy rich typer
    touch "$venv/.ready"
fi

cd "$root"
"$venv/bin/pip" --quiet install --no-deps --editable packages/thunder-core --editable packages/thunder-te
export OMP_NUM_THREADS=1 NVTE_UNFUSED_FP8_UPDATE=1
"$venv/bin/python" -m pytest tests/te/real_library.py -q
"$venv/bin/python" -m pytest tests/core -q -n "${WORKERS:-2}" -m "not slow and not exhaustive"
