// Products with K over the set F, which is stored as tiles of its upper triangle (tiles.cu, packed.cu).

__device__ __forceinline__ u64 tile_at(u64 i, u64 j, u64 t) { return i * t - i * (i - 1) / 2 + (j - i); }

// ---------------------------------------------------------------- y = K q on the tiles

// How the second-level cache treats what is read: tiles that stay there from one product to the next are read in the ordinary way, all
// others make room first.
__device__ __forceinline__ u64 reading(bool stays) {
    u64 policy;
    if (stays)
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    else
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint4 read_once(const void *p, u64 policy) {
    uint4 w;
    asm("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(p), "l"(policy));
    return w;
}

// Eight entries of each of a thread's eight rows of a tile, as they are stored. 16-bit entries are requested for one tile while those of the
// tile before are used; single-precision ones would take too many registers.
struct Stored16 {
    uint4 words[8];
    __device__ __forceinline__ void request(const u16 *p, u64 policy) {
        #pragma unroll
        for (int a = 0; a < 8; a++) words[a] = read_once(p + a * SIDE, policy);
    }
    __device__ __forceinline__ void row(int a, float (&e)[8]) const {
        u32 w[4] = {words[a].x, words[a].y, words[a].z, words[a].w};
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            // An integer below 2¹⁶ in the low bits of 2²³ is that number above 2²³.
            e[2 * k] = __uint_as_float(__byte_perm(w[k], 0x4B000000u, 0x7410)) - 8388608.f;
            e[2 * k + 1] = __uint_as_float(__byte_perm(w[k], 0x4B000000u, 0x7432)) - 8388608.f;
        }
    }
};
struct Stored32 {
    const float *from;
    u64 policy;
    __device__ __forceinline__ void request(const float *p, u64 with) { from = p; policy = with; }
    __device__ __forceinline__ void row(int a, float (&e)[8]) const {
        uint4 x = read_once(from + a * SIDE, policy), y = read_once(from + a * SIDE + 4, policy);
        u32 w[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
        #pragma unroll
        for (int k = 0; k < 8; k++) e[k] = __uint_as_float(w[k]);
    }
};
template <typename T> struct StoredAs;
template <> struct StoredAs<u16> { typedef Stored16 Type; };
template <> struct StoredAs<float> { typedef Stored32 Type; };

// Every tile is read once and used for its rows and its columns. A block takes `chunk` tiles of one row of tiles; its sums over
// rows go to `by_row`, the sums over columns of each tile to `by_column`. The first `stay` tiles stay in the second-level cache.
template <typename T>
__device__ __forceinline__ void multiply(const T *k, u32 across, u32 chunk, u32 stay, const float *q, float *by_row, float *by_column, u32 block) {
    u32 chunks = (across + chunk - 1) / chunk, i = block / chunks, c = block % chunks;
    u32 from = max(i, c * chunk), to = min(across, (c + 1) * chunk);
    if (from >= to) return;
    __shared__ float sums[8][SIDE];
    u32 t = threadIdx.x, lane = t & 31, w = t >> 5, row = t >> 4, column = t & 15;
    typename StoredAs<T>::Type next;
    u64 first = tile_at(i, from, across);
    const T *own_part = k + row * 8 * SIDE + column * 8;
    next.request(own_part + first * (SIDE * SIDE), reading(first < stay));
    float own[8], rows[8];
    #pragma unroll
    for (int a = 0; a < 8; a++) {
        own[a] = q[i * SIDE + row * 8 + a];
        rows[a] = 0;
    }
    for (u32 j = from; j < to; j++) {
        u64 tile = first + (j - from);
        typename StoredAs<T>::Type stored = next;
        if (j + 1 < to) next.request(own_part + (tile + 1) * (SIDE * SIDE), reading(tile + 1 < stay));
        float4 x = *(const float4 *)(q + j * SIDE + column * 8), y = *(const float4 *)(q + j * SIDE + column * 8 + 4);
        float cols[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        #pragma unroll
        for (int a = 0; a < 8; a++) {
            float e[8];
            stored.row(a, e);
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

extern "C" __global__ void __launch_bounds__(256) multiply_u16(const u16 *k, u32 across, u32 chunk, u32 stay, const float *q, float *by_row, float *by_column, const Cg *cg) {
    if (!cg->done) multiply<u16>(k, across, chunk, stay, q, by_row, by_column, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(256) multiply_f32(const float *k, u32 across, u32 chunk, u32 stay, const float *q, float *by_row, float *by_column, const Cg *cg) {
    if (!cg->done) multiply<float>(k, across, chunk, stay, q, by_row, by_column, blockIdx.x);
}

// out = (K + d) q on the rows of the mask (on all with `all`), and parts of the sums qᵀ·out and Σ out, for the row j of tiles.
__device__ __forceinline__ void sum_row(u32 m, u32 across, u32 chunk, double scale, const Set &f, const float *by_row, const float *by_column, u32 all, double *out, double *parts, u32 j) {
    __shared__ double sums[8][SIDE];
    u32 lane = threadIdx.x & 31, w = threadIdx.x >> 5, chunks = (across + chunk - 1) / chunk;
    double s[4] = {0, 0, 0, 0};
    #pragma unroll 8
    for (u32 i = w; i < j; i += 8) {
        float4 v = *(const float4 *)(by_column + tile_at(i, j, across) * SIDE + lane * 4);
        s[0] += v.x; s[1] += v.y; s[2] += v.z; s[3] += v.w;
    }
    #pragma unroll 4
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
