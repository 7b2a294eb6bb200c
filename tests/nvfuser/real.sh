#!/usr/bin/env bash
# Tests of the real nvFuser on a machine without a GPU: makes an environment (7 GB, a few minutes; Python 3.12 or 3.10),
# then builds, evaluates and compiles fusions there, and runs the fast tests of the core beside it.
#
#     tests/nvfuser/real.sh [FOLDER_OF_THE_ENVIRONMENT]
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/.venv-nvfuser}
python=${PYTHON:-python3.12}

if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 12)))' 2> /dev/null; then
    echo "nvFuser is built for Python 3.10 and 3.12, and $python is neither: set PYTHON to one" >&2
    exit 1
fi
if [ ! -e "$venv/.ready" ]; then
    "$python" -m venv "$venv"
    pip="$venv/bin/pip --quiet --disable-pip-version-check"
    $pip install torch==2.10.0 numpy
    $pip install --pre nvfuser-cu128-torch210==0.2.36.dev20260301
    $pip install pytest pytest-xdist hypothesis expecttest transformers pluggy packaging rich typer
    for package in core te nvfuser; do
        $pip install --no-deps --editable "$root/packages/thunder-$package"
    done
    touch "$venv/.ready"
fi

cd "$root"
export OMP_NUM_THREADS=1
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if tests/nvfuser/fake_cuda.sh "$site" "$venv/fake_cuda" "${CUDA_HOME:-/usr/local/cuda}"; then
    LD_LIBRARY_PATH=$venv/fake_cuda LD_PRELOAD=$venv/fake_cuda/libcuda.so.1 \
        "$venv/bin/python" -m pytest tests/nvfuser/real_library.py -q -s -p no:cacheprovider
else
    echo "no stand-in for CUDA (it takes gcc and CUDA's headers): fusions are built, and not evaluated"
    "$venv/bin/python" -m pytest tests/nvfuser/real_library.py -q -p no:cacheprovider
fi
"$venv/bin/python" -m pytest tests/core -q -n 2 -m "not slow and not exhaustive"
