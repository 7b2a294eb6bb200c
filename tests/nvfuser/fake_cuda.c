/* A CUDA runtime and driver without a device: memory is the host's, copies copy, and kernels do nothing.
 *
 * With it PyTorch and nvFuser see one device, so that fusions can be planned, compiled and evaluated on a CPU. Every
 * other function that they import is a stub that reports success (made by fake_cuda.sh). */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAJOR = 9, MINOR = 0, PROCESSORS = 132, THREADS = 1024, WARP = 32 };
static const size_t MEMORY = (size_t)80 << 30;

static int attribute(int which) {
    switch (which) {
        case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return THREADS;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return 2147483647;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 227 << 10;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 228 << 10;
        case cudaDevAttrReservedSharedMemoryPerBlock: return 1 << 10;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
        case cudaDevAttrWarpSize: return WARP;
        case cudaDevAttrMultiProcessorCount: return PROCESSORS;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
        case cudaDevAttrClockRate: return 1980000;
        case cudaDevAttrMemoryClockRate: return 2619000;
        case cudaDevAttrGlobalMemoryBusWidth: return 5120;
        case cudaDevAttrL2CacheSize: return 50 << 20;
        case cudaDevAttrComputeCapabilityMajor: return MAJOR;
        case cudaDevAttrComputeCapabilityMinor: return MINOR;
        case cudaDevAttrUnifiedAddressing: case cudaDevAttrCooperativeLaunch: case cudaDevAttrManagedMemory: return 1;
        default: return 0;
    }
}

static void *handle(void) {
    static size_t next = 4096;
    return (void *)(next += 16);
}

/* The runtime. */
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return "an error of the fake CUDA"; }
const char *cudaGetErrorName(cudaError_t error) { return "fake"; }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    *value = attribute(which);
    return cudaSuccess;
}

#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "fake");
    p->totalGlobalMem = MEMORY;
    p->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
    p->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p->reservedSharedMemPerBlock = attribute(cudaDevAttrReservedSharedMemoryPerBlock);
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = WARP;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->multiProcessorCount = PROCESSORS;
    p->major = MAJOR;
    p->minor = MINOR;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120;
    p->cooperativeLaunch = p->unifiedAddressing = p->managedMemory = p->concurrentKernels = 1;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t n) {
    *p = aligned_alloc(512, (n / 512 + 1) * 512);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t stream) { return cudaMalloc(p, n); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) { return cudaMalloc(p, n); }
cudaError_t cudaFree(void *p) { free(p); return cudaSuccess; }
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) { return cudaFree(p); }
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) { *available = *total = MEMORY; return cudaSuccess; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    memcpy(to, from, n);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return cudaMemcpy(to, from, n, kind);
}
cudaError_t cudaMemset(void *p, int value, size_t n) { memset(p, value, n); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream) { return cudaMemset(p, value, n); }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    memset(a, 0, sizeof *a);
    a->type = cudaMemoryTypeDevice;
    a->devicePointer = (void *)p;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { *event = handle(); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) { *ms = 1; return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    *s = handle();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = *greatest = 0; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo_v2(
    cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **dependencies, size_t *count
) {
    *status = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device) { snprintf(id, n, "0000:00:00.0"); return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *kernel, int threads, size_t shared, unsigned flags
) {
    *blocks = 2;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = THREADS;
    a->numRegs = 32;
    a->binaryVersion = a->ptxVersion = 10 * MAJOR + MINOR;
    return cudaSuccess;
}

/* The driver. */
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int n, CUdevice device) { snprintf(name, n, "fake"); return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    *value = attribute((int)which);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)16; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **text) { *text = "fake"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "an error of the fake CUDA"; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = handle(); return CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *options, void **values) {
    return cuModuleLoadData(m, image);
}
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) { *f = handle(); return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction f) {
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? THREADS : which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : 0;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t shared) {
    *n = 2;
    return CUDA_SUCCESS;
}
static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **f, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result
) {
    *f = dlsym(RTLD_DEFAULT, name);
    if (!*f) *f = (void *)not_supported;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(
    const char *name, void **f, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result
) {
    return cudaGetDriverEntryPointByVersion(name, f, 0, flags, result);
}
