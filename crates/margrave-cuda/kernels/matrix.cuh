// Products with K over the set F, which is stored as tiles of its upper triangle (tiles.cu, packed.cu).

__device__ __forceinline__ u64 tile_at(u64 i, u64 j, u64 t) { return i * t - i * (i - 1) / 2 + (j - i); }

// ---------------------------------------------------------------- y = K q on the tiles

struct Cg {
    double rr, rz, aim, floor, limit, largest, base;
    int done, steps, most, free;
};

// Eight entries of a tile's row as floats.
__device__ __forceinline__ void eight(const u16 *p, float (&e)[8]) {
    uint4 w = __ldcs((const uint4 *)p);
    u32 words[4] = {w.x, w.y, w.z, w.w};
    #pragma unroll
    for (int k = 0; k < 4; k++) {
        // An integer below 2¹⁶ in the low bits of 2²³ is that number above 2²³.
        e[2 * k] = __uint_as_float(__byte_perm(words[k], 0x4B000000u, 0x7410)) - 8388608.f;
        e[2 * k + 1] = __uint_as_float(__byte_perm(words[k], 0x4B000000u, 0x7432)) - 8388608.f;
    }
}
__device__ __forceinline__ void eight(const float *p, float (&e)[8]) {
    float4 a = __ldcs((const float4 *)p), b = __ldcs((const float4 *)(p + 4));
    e[0] = a.x; e[1] = a.y; e[2] = a.z; e[3] = a.w; e[4] = b.x; e[5] = b.y; e[6] = b.z; e[7] = b.w;
}

// Every tile is read once and used for its rows and its columns. A block takes `chunk` tiles of one row of tiles; its sums over
// rows go to `by_row`, the sums over columns of each tile to `by_column`.
template <typename T>
__device__ __forceinline__ void multiply(const T *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, u32 block) {
    u32 chunks = (across + chunk - 1) / chunk, i = block / chunks, c = block % chunks;
    u32 from = max(i, c * chunk), to = min(across, (c + 1) * chunk);
    if (from >= to) return;
    __shared__ float sums[8][SIDE];
    u32 t = threadIdx.x, lane = t & 31, w = t >> 5, row = t >> 4, column = t & 15;
    float own[8], rows[8];
    #pragma unroll
    for (int a = 0; a < 8; a++) {
        own[a] = q[i * SIDE + row * 8 + a];
        rows[a] = 0;
    }
    for (u32 j = from; j < to; j++) {
        u64 tile = tile_at(i, j, across);
        const T *p = k + tile * (SIDE * SIDE) + row * 8 * SIDE + column * 8;
        float4 x = *(const float4 *)(q + j * SIDE + column * 8), y = *(const float4 *)(q + j * SIDE + column * 8 + 4);
        float cols[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        #pragma unroll
        for (int a = 0; a < 8; a++) {
            float e[8];
            eight(p + a * SIDE, e);
            rows[a] += e[0] * x.x + e[1] * x.y + e[2] * x.z + e[3] * x.w + e[4] * y.x + e[5] * y.y + e[6] * y.z + e[7] * y.w;
            #pragma unroll
            for (int b = 0; b < 8; b++) cols[b] = fmaf(e[b], own[a], cols[b]);
        }
        if (j > i) {
            #pragma unroll
            for (int b = 0; b < 8; b++) cols[b] += __shfl_xor_sync(~0u, cols[b], 16);
            __syncthreads();
            if (lane < 16) {
                #pragma unroll
                for (int b = 0; b < 8; b++) sums[w][lane * 8 + b] = cols[b];
            }
            __syncthreads();
            if (t < SIDE) {
                float sum = 0;
                for (int a = 0; a < 8; a++) sum += sums[a][t];
                by_column[tile * SIDE + t] = sum;
            }
        }
    }
    #pragma unroll
    for (int a = 0; a < 8; a++) {
        float sum = rows[a];
        for (int o = 1; o < 16; o <<= 1) sum += __shfl_xor_sync(~0u, sum, o);
        if (column == 0) by_row[(u64)block * SIDE + row * 8 + a] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) multiply_u16(const u16 *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, const Cg *cg) {
    if (!cg->done) multiply<u16>(k, across, chunk, q, by_row, by_column, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(256) multiply_f32(const float *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, const Cg *cg) {
    if (!cg->done) multiply<float>(k, across, chunk, q, by_row, by_column, blockIdx.x);
}

// out = (K + d) q on the rows of the mask (on all with `all`), and parts of the sums qᵀ·out and Σ out, for the row j of tiles.
__device__ __forceinline__ void sum_row(u32 m, u32 across, u32 chunk, double scale, const Set &f, const float *by_row, const float *by_column, u32 all, double *out, double *parts, u32 j) {
    __shared__ double sums[8][SIDE];
    u32 lane = threadIdx.x & 31, w = threadIdx.x >> 5, chunks = (across + chunk - 1) / chunk;
    double s[4] = {0, 0, 0, 0};
    for (u32 i = w; i < j; i += 8) {
        float4 v = *(const float4 *)(by_column + tile_at(i, j, across) * SIDE + lane * 4);
        s[0] += v.x; s[1] += v.y; s[2] += v.z; s[3] += v.w;
    }
    for (u32 c = j / chunk + w; c < chunks; c += 8) {
        float4 v = *(const float4 *)(by_row + ((u64)j * chunks + c) * SIDE + lane * 4);
        s[0] += v.x; s[1] += v.y; s[2] += v.z; s[3] += v.w;
    }
    #pragma unroll
    for (int a = 0; a < 4; a++) sums[w][lane * 4 + a] = s[a];
    __syncthreads();
    double dot = 0, sum = 0;
    u32 i = j * SIDE + threadIdx.x;
    if (threadIdx.x < SIDE && i < m && (all || f.mask[i])) {
        double y = 0;
        for (int a = 0; a < 8; a++) y += sums[a][threadIdx.x];
        y = y * scale + f.d[i] * f.q[i];
        out[i] = y;
        dot = y * f.q[i];
        sum = y;
    }
    block_both<false>(dot, sum);
    if (threadIdx.x == 0) {
        parts[2 * j] = dot;
        parts[2 * j + 1] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) multiply_sum(u32 m, u32 across, u32 chunk, double scale, Set f, const float *by_row, const float *by_column, u32 all, double *out, double *parts, const Cg *cg) {
    if (!cg->done) sum_row(m, across, chunk, scale, f, by_row, by_column, all, out, parts, blockIdx.x);
}
