// Kernel entries and products with them, in the precision REAL (float or double).

#include "statistics.cuh"

// Tiles of columns that one block adds up: fixed, as it determines the order of summation.
#define TILES 16

// out[r·width + c] = K[r, c]; `narrow`: stored in single precision.
template <int STATISTIC>
__device__ __forceinline__ void block(const Side &a, const Side &b, const Kernel &kernel, void *out, u32 narrow) {
    __shared__ Memory memory;
    // Columns vary fastest, so that blocks that run together share the rows.
    u32 across = (b.count + TILE - 1) / TILE;
    u32 r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
    statistics_tile<STATISTIC>(memory, a, r0, b, c0);
    u32 c = c0 + threadIdx.x % TILE;
    if (c >= b.count) return;
    #pragma unroll 1
    for (u32 r = r0 + threadIdx.x / TILE; r < min(a.count, r0 + TILE); r += THREADS / TILE) {
        u64 at = (u64)r * b.count + c;
        REAL value = finish<STATISTIC>(kernel, memory.tile[r - r0][c - c0]);
        if (narrow) ((float *)out)[at] = (float)value;
        else ((REAL *)out)[at] = value;
    }
}

// part[split][r][·] = Σ K[r, c]·V[c, ·] over the columns of the split, for WIDTH ≥ k columns of V, whose row c starts at c·stride.
// Sums are double precision in every case.
template <int STATISTIC, int WIDTH>
__device__ __forceinline__ void product(const Side &a, const Side &b, const Kernel &kernel, const double *v, u32 stride, u32 k, double *part) {
    __shared__ Memory memory;
    u32 t = threadIdx.x, r0 = blockIdx.x * TILE, mine = t / 4, quarter = t % 4;
    double sums[WIDTH];
    #pragma unroll
    for (int c = 0; c < WIDTH; c++) sums[c] = 0;
    u32 from = blockIdx.y * TILES * TILE, to = min(b.count, from + TILES * TILE);
    for (u32 c0 = from; c0 < to; c0 += TILE) {
        statistics_tile<STATISTIC>(memory, a, r0, b, c0);
        u32 width = min(TILE, to - c0);
        #pragma unroll 1
        for (u32 c = quarter; c < width; c += 4) {
            double entry = finish<STATISTIC>(kernel, memory.tile[mine][c]);
            const double *line = v + (u64)(c0 + c) * stride;
            #pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (WIDTH == 1 || j < k) sums[j] = fma(entry, line[j], sums[j]);
        }
        __syncthreads();
    }
    #pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        sums[j] += __shfl_xor_sync(~0u, sums[j], 1);
        sums[j] += __shfl_xor_sync(~0u, sums[j], 2);
        if (quarter == 0 && r0 + mine < a.count && j < k) part[((u64)blockIdx.y * a.count + r0 + mine) * k + j] = sums[j];
    }
}

#define ENTRY_POINTS(STATISTIC, name)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME(block_##name)(Side a, Side b, Kernel kernel, void *out, u32 narrow) { \
        block<STATISTIC>(a, b, kernel, out, narrow);                                                                           \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(product1_##name)(Side a, Side b, Kernel kernel, const double *v, u32 stride, u32 k, double *part) { \
        product<STATISTIC, 1>(a, b, kernel, v, stride, k, part);                                                               \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME(product8_##name)(Side a, Side b, Kernel kernel, const double *v, u32 stride, u32 k, double *part) { \
        product<STATISTIC, 8>(a, b, kernel, v, stride, k, part);                                                               \
    }

ENTRY_POINTS(DOT, dot)
ENTRY_POINTS(SQUARED, squared)
ENTRY_POINTS(ABSOLUTE, absolute)
ENTRY_POINTS(CHI, chi)

// out[r·stride + j] = Σ part[split][r][j], in the order of the splits.
extern "C" __global__ void NAME(add_parts)(const double *part, u32 splits, u32 rows, u32 k, double *out, u32 stride) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= (u64)rows * k) return;
    double sum = 0;
    for (u32 split = 0; split < splits; split++) sum += part[(u64)split * rows * k + i];
    out[i / k * stride + i % k] = sum;
}
