// K over a set of points as tiles of its upper triangle, by sums over differences.

#include "statistics.cuh"

typedef unsigned short u16;
// Rows and columns of a stored tile.
#define SIDE 128

__device__ __forceinline__ u64 tile_at(u64 i, u64 j, u64 t) { return i * t - i * (i - 1) / 2 + (j - i); }

// K over the points `f` as tiles of its upper triangle; a block computes a quarter of a tile. `T` is u16 (k·65535, for kernels with
// values from 0 to 1) or float.
template <int STATISTIC, typename T>
__device__ __forceinline__ void tiles(const Side &f, const Kernel &kernel, u32 across, T *out) {
    __shared__ Memory memory;
    // The tile number from the block's: rows of the triangle have falling lengths.
    u64 tile = blockIdx.x / 4;
    u32 quarter = blockIdx.x % 4;
    u64 i = (u64)((2.0 * across + 1 - sqrt((2.0 * across + 1) * (2.0 * across + 1) - 8.0 * (double)tile)) / 2);
    while (i > 0 && tile_at(i, i, across) > tile) i--;
    while (tile_at(i + 1, i + 1, across) <= tile) i++;
    u64 j = tile - tile_at(i, i, across) + i;
    u32 r0 = (u32)i * SIDE + quarter / 2 * TILE, c0 = (u32)j * SIDE + quarter % 2 * TILE;
    statistics_tile<STATISTIC>(memory, f, r0, f, c0);
    T *to = out + tile * SIDE * SIDE + quarter / 2 * TILE * SIDE + quarter % 2 * TILE;
    u32 c = threadIdx.x % TILE;
    #pragma unroll 1
    for (u32 r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE) {
        float value = finish<STATISTIC>(kernel, memory.tile[r][c]);
        if (r0 + r >= f.count || c0 + c >= f.count) value = 0;
        if (sizeof(T) == 2) to[r * SIDE + c] = (T)(value * 65535.f + 0.5f);
        else to[r * SIDE + c] = (T)value;
    }
}

#define TILE_PROGRAMS(STATISTIC, name, T, kind)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) tiles_##kind##_##name(Side f, Kernel kernel, u32 across, T *out) {   \
        tiles<STATISTIC, T>(f, kernel, across, out);                                                                           \
    }
TILE_PROGRAMS(DOT, dot, float, f32)
TILE_PROGRAMS(SQUARED, squared, float, f32)
TILE_PROGRAMS(ABSOLUTE, absolute, float, f32)
TILE_PROGRAMS(CHI, chi, float, f32)
TILE_PROGRAMS(SQUARED, squared, u16, u16)
TILE_PROGRAMS(ABSOLUTE, absolute, u16, u16)
TILE_PROGRAMS(CHI, chi, u16, u16)
