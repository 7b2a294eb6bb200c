#!/usr/bin/env bash
# Builds the stand-in for CUDA, from fake_cuda.c and stubs of what else PyTorch and nvFuser import:
#
#     tests/nvfuser/fake_cuda.sh SITE_PACKAGES FOLDER [CUDA_HOME]
#
# Run Python with LD_LIBRARY_PATH=FOLDER LD_PRELOAD=FOLDER/libcuda.so.1. Needs gcc and the headers of CUDA.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
site=$1 folder=$2 cuda=${3:-/usr/local/cuda}
include=(-I "$site/nvidia/cuda_runtime/include" -idirafter "$cuda/include")
mkdir -p "$folder"
gcc -O1 -w -fPIC "${include[@]}" -c "$here/fake_cuda.c" -o "$folder/fake.o"
nm --defined-only "$folder/fake.o" | awk '{print $3}' | sort -u > "$folder/made"
find "$site" \( -name 'libc10_cuda*' -o -name 'libtorch_cuda*' -o -name 'libnvfuser*' -o -name '_C_DIRECT*' \) -name '*.so*' \
    -exec nm -D --undefined-only {} + | awk '{print $2}' | sed 's/@.*//' | grep -E '^cu(da)?[A-Z]\w*$' | sort -u |
    grep -vE '^cu(da)?(blas|dnn|fft|sparse|solver|rand|file|TensorMap)' | comm -23 - "$folder/made" > "$folder/missing"
{
    sed 's/.*/int &(void) { return 0; }/' "$folder/missing"
    # fetched by name from the driver
    for name in cuInit cuCtxCreate cuCtxSetCurrent cuCtxDetach cuModuleUnload cuFuncSetAttribute cuLaunchKernel cuLaunchKernelEx \
        cuLaunchCooperativeKernel; do
        grep -qx "$name" "$folder/missing" || echo "int $name(void) { return 0; }"
    done
} > "$folder/stubs.c"
gcc -O1 -w -shared -fPIC -Wl,-soname,libcuda.so.1 "$folder/fake.o" "$folder/stubs.c" -o "$folder/libcuda.so.1" -ldl
ln -sf libcuda.so.1 "$folder/libcuda.so"
