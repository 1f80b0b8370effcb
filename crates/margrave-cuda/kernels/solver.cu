// The set Newton solver on the card: sets, conjugate gradients, pinning, steps. The host's part is in src/solver.
//
//   min ½ βᵀKβ + Σ (pβ + eps|β| + ½dβ²),   lo ≤ β ≤ hi,   Σβ kept if there is a bias
//
// g = Kβ + p + dβ is the slope of the smooth part. In a round the variables of the set F move within one piece of their term
// (with a kink at zero: one side of it), where the objective is quadratic.
//
// Everything that adds up does so in a fixed order: runs on one card are bit-identical.

#include "statistics.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
// Rows and columns of a stored tile of K over F.
#define SIDE 128

// ---------------------------------------------------------------- sums over a block

__device__ double block_sum(double v) {
    __shared__ double warp[33];
    int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (lane == 0) warp[w] = v;
    __syncthreads();
    if (w == 0) {
        double t = lane < (int)(blockDim.x >> 5) ? warp[lane] : 0;
        for (int o = 16; o; o >>= 1) t += __shfl_xor_sync(~0u, t, o);
        if (lane == 0) warp[32] = t;
    }
    __syncthreads();
    return warp[32];
}

__device__ double block_max(double v) {
    __shared__ double warp[33];
    int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
    for (int o = 16; o; o >>= 1) v = fmax(v, __shfl_xor_sync(~0u, v, o));
    __syncthreads();
    if (lane == 0) warp[w] = v;
    __syncthreads();
    if (w == 0) {
        double t = lane < (int)(blockDim.x >> 5) ? warp[lane] : -INFINITE;
        for (int o = 16; o; o >>= 1) t = fmax(t, __shfl_xor_sync(~0u, t, o));
        if (lane == 0) warp[32] = t;
    }
    __syncthreads();
    return warp[32];
}

// ---------------------------------------------------------------- the variables

struct Variables {
    double *beta, *g;
    const double *lo, *hi, *eps, *d;
};

// What the host reads after each part of a round: `State` in src/solver/state.rs.
struct State {
    double up, low, mu, violation, threshold, step, slope, curvature, residual, aim;
    int free, released, out, left, done, steps;
};

__device__ __forceinline__ double up_offset(double b, double eps) { return b >= 0 ? eps : -eps; }
__device__ __forceinline__ double down_offset(double b, double eps) { return b > 0 ? eps : -eps; }
__device__ __forceinline__ bool is_free(double b, double lo, double hi, double eps) {
    return b > lo && b < hi && (b != 0 || eps == 0);
}

// How far the slope of a fixed variable is on the wrong side; `side`: where it wants to go.
__device__ __forceinline__ double wish(const Variables &v, u32 i, double mu, int &side) {
    double b = v.beta[i], g = v.g[i], eps = v.eps[i];
    double rise = b < v.hi[i] ? mu - (g + up_offset(b, eps)) : -INFINITE;
    double fall = b > v.lo[i] ? g + down_offset(b, eps) - mu : -INFINITE;
    side = rise >= fall ? 1 : -1;
    return fmax(rise, fall);
}

extern "C" __global__ void measure_parts(Variables v, u32 n, double *parts) {
    double up = INFINITE, low = -INFINITE, sum = 0, count = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double b = v.beta[i], g = v.g[i], lo = v.lo[i], hi = v.hi[i], eps = v.eps[i];
        if (b < hi) up = fmin(up, g + up_offset(b, eps));
        if (b > lo) low = fmax(low, g + down_offset(b, eps));
        if (is_free(b, lo, hi, eps)) {
            sum += g + up_offset(b, eps);
            count += 1;
        }
    }
    up = -block_max(-up);
    low = block_max(low);
    sum = block_sum(sum);
    count = block_sum(count);
    if (threadIdx.x == 0) {
        double *p = parts + 4 * blockIdx.x;
        p[0] = up; p[1] = low; p[2] = sum; p[3] = count;
    }
}

extern "C" __global__ void measure(const double *parts, u32 blocks, u32 paired, State *state) {
    double up = INFINITE, low = -INFINITE, sum = 0, count = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) {
        up = fmin(up, parts[4 * i]);
        low = fmax(low, parts[4 * i + 1]);
        sum += parts[4 * i + 2];
        count += parts[4 * i + 3];
    }
    up = -block_max(-up);
    low = block_max(low);
    sum = block_sum(sum);
    count = block_sum(count);
    if (threadIdx.x == 0) {
        double middle = isinf(up) ? (isinf(low) ? 0 : low) : (isinf(low) ? up : 0.5 * (up + low));
        state->up = up;
        state->low = low;
        state->mu = paired ? (count > 0 ? sum / count : middle) : 0;
        state->violation = paired ? fmax(0.0, low - up) : fmax(0.0, fmax(low, -up));
        state->free = (int)count;
        state->released = 0;
    }
}

extern "C" __global__ void wish_histogram(Variables v, u32 n, const State *state, double slack, u32 *histogram) {
    __shared__ u32 own[4096];
    for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) own[i] = 0;
    __syncthreads();
    double scale = 4096 / fmax(state->violation, 1e-300);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (is_free(v.beta[i], v.lo[i], v.hi[i], v.eps[i])) continue;
        int side;
        double w = wish(v, i, state->mu, side);
        if (w > slack) atomicAdd(&own[(u32)fmin(4095.0, w * scale)], 1);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 4096; i += blockDim.x)
        if (own[i]) atomicAdd(&histogram[i], own[i]);
}

// The slope from which fixed variables are released: at most `limit` of them. 64 threads.
extern "C" __global__ void wish_threshold(State *state, const u32 *histogram, double slack, u32 limit) {
    __shared__ u32 group[64];
    u32 sum = 0;
    for (int i = 0; i < 64; i++) sum += histogram[threadIdx.x * 64 + i];
    group[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    u32 all = 0;
    for (int i = 0; i < 64; i++) all += group[i];
    int at = 0;
    if (all > limit) {
        u32 taken = 0;
        int g = 63;
        while (g > 0 && taken + group[g] < limit) taken += group[g--];
        at = g * 64 + 63;
        while (at > g * 64) {
            taken += histogram[at];
            if (taken >= limit) break;
            at--;
        }
    }
    state->released = (int)all;
    state->threshold = fmax(slack, at * state->violation / 4096);
}

extern "C" __global__ void flag_set(Variables v, u32 n, const State *state, u8 *flags) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int side;
    flags[i] = is_free(v.beta[i], v.lo[i], v.hi[i], v.eps[i]) || wish(v, i, state->mu, side) > state->threshold;
}

extern "C" __global__ void flag_nonzero(const double *values, u32 n, u8 *flags) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) flags[i] = values[i] != 0;
}

// Positions of set flags, ascending, in three launches: counts of chunks of 1 024, their prefix sums, the list.
extern "C" __global__ void select_count(const u8 *flags, u32 n, u32 *counts) {
    u32 i = blockIdx.x * 1024 + threadIdx.x;
    int all = __syncthreads_count(i < n && flags[i]);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

extern "C" __global__ void select_scan(u32 *counts, u32 chunks, u32 *total) {
    __shared__ u32 sums[1024];
    u32 each = (chunks + 1023) / 1024, from = threadIdx.x * each, to = min(chunks, from + each), own = 0;
    for (u32 i = from; i < to; i++) own += counts[i];
    sums[threadIdx.x] = own;
    __syncthreads();
    for (u32 o = 1; o < 1024; o <<= 1) {
        u32 before = threadIdx.x >= o ? sums[threadIdx.x - o] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    u32 at = sums[threadIdx.x] - own;
    for (u32 i = from; i < to; i++) {
        u32 c = counts[i];
        counts[i] = at;
        at += c;
    }
    if (threadIdx.x == 1023) *total = sums[1023];
}

extern "C" __global__ void select_list(const u8 *flags, u32 n, const u32 *starts, u32 *list) {
    __shared__ u32 warps[32];
    u32 i = blockIdx.x * 1024 + threadIdx.x, lane = threadIdx.x & 31, w = threadIdx.x >> 5;
    bool set = i < n && flags[i];
    u32 votes = __ballot_sync(~0u, set);
    if (lane == 0) warps[w] = __popc(votes);
    __syncthreads();
    if (w == 0) {
        u32 own = warps[lane], sum = own;
        for (int o = 1; o < 32; o <<= 1) {
            u32 before = __shfl_up_sync(~0u, sum, o);
            if (lane >= o) sum += before;
        }
        warps[lane] = sum - own;
    }
    __syncthreads();
    if (set) list[starts[blockIdx.x] + warps[w] + __popc(votes & ((1u << lane) - 1))] = i;
}

// ---------------------------------------------------------------- the set F

// Variables of F: x is the move, between `low` and `high`; `slope` at the start of the round, kink included.
struct Set {
    double *slope, *low, *high, *d, *x;
    float *q;
    u8 *mask;
};

// `rows` are the points of the variables; `proximal` is added to the curvature of each.
extern "C" __global__ void gather_set(Variables v, const u32 *order, const State *state, const u32 *list, u32 m, double proximal, Set f, u32 *rows) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = list[a];
    double b = v.beta[i], lo = v.lo[i], hi = v.hi[i], eps = v.eps[i], offset = 0;
    if (eps > 0) {
        int side = b > 0 ? 1 : -1;
        if (b == 0) wish(v, i, state->mu, side);
        if (side > 0) { lo = 0; offset = eps; }
        else { hi = 0; offset = -eps; }
    }
    f.slope[a] = v.g[i] + offset;
    f.low[a] = lo - b;
    f.high[a] = hi - b;
    f.d[a] = v.d[i] + proximal;
    f.x[a] = 0;
    f.q[a] = 0;
    f.mask[a] = 1;
    rows[a] = order[i];
}

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
__device__ __forceinline__ void multiply(const T *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, const Cg *cg) {
    if (cg->done) return;
    u32 chunks = (across + chunk - 1) / chunk, i = blockIdx.x / chunks, c = blockIdx.x % chunks;
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
        if (column == 0) by_row[(u64)blockIdx.x * SIDE + row * 8 + a] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) multiply_u16(const u16 *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, const Cg *cg) {
    multiply<u16>(k, across, chunk, q, by_row, by_column, cg);
}
extern "C" __global__ void __launch_bounds__(256) multiply_f32(const float *k, u32 across, u32 chunk, const float *q, float *by_row, float *by_column, const Cg *cg) {
    multiply<float>(k, across, chunk, q, by_row, by_column, cg);
}

// out = (K + d) q on the rows of the mask (on all with `all`), and parts of the sums qᵀ·out and Σ out. One block per row of tiles.
extern "C" __global__ void __launch_bounds__(256) multiply_sum(u32 m, u32 across, u32 chunk, double scale, Set f, const float *by_row, const float *by_column, u32 all, double *out, double *parts, const Cg *cg) {
    if (cg->done) return;
    __shared__ double sums[8][SIDE];
    u32 j = blockIdx.x, lane = threadIdx.x & 31, w = threadIdx.x >> 5, chunks = (across + chunk - 1) / chunk;
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
    dot = block_sum(dot);
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        parts[2 * j] = dot;
        parts[2 * j + 1] = sum;
    }
}

// ---------------------------------------------------------------- conjugate gradients on the free part of F, one block of 1 024 threads

// r = −(slope + K x), free of its mean if the sum is kept. `Kx` is used with `have`.
extern "C" __global__ void cg_start(u32 m, Set f, const double *kx, u32 have, double *r, Cg *cg, u32 paired, double aim, double floor, double share, u32 most) {
    double sum = 0, count = 0, slope = 0, slopes = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            double t = -(f.slope[i] + (have ? kx[i] : 0));
            r[i] = t;
            sum += t;
            count += 1;
            slope += f.slope[i];
            slopes += f.slope[i] * f.slope[i];
        }
    sum = block_sum(sum);
    count = block_sum(count);
    slope = block_sum(slope);
    slopes = block_sum(slopes);
    double mean = paired ? sum / count : 0, rr = 0, largest = 0;
    double base = paired ? slopes - slope * slope / count : slopes;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) {
        float q = 0;
        if (f.mask[i]) {
            double t = r[i] - mean;
            r[i] = t;
            rr += t * t;
            largest = fmax(largest, fabs(t));
            q = (float)t;
        }
        f.q[i] = q;
    }
    rr = block_sum(rr);
    largest = block_max(largest);
    if (threadIdx.x == 0) {
        cg->rr = rr;
        cg->largest = largest;
        cg->base = base;
        cg->aim = aim;
        cg->floor = floor;
        cg->limit = share * share * base;
        cg->steps = 0;
        cg->most = most;
        cg->free = (int)count;
        cg->done = largest <= floor || (largest <= aim && rr <= cg->limit) || rr == 0;
    }
}

// Goes on with a tighter aim.
extern "C" __global__ void cg_tighten(Cg *cg, double aim, double share, u32 more) {
    cg->aim = aim;
    cg->limit = share * share * cg->base;
    cg->most = cg->steps + more;
    cg->done = cg->largest <= cg->floor || (cg->largest <= aim && cg->rr <= cg->limit);
}

// After the product: step length, move, residual, next direction. done = 2: no positive curvature.
extern "C" __global__ void cg_step(u32 m, Set f, double *r, const double *kq, const double *parts, u32 blocks, Cg *cg, u32 paired) {
    if (cg->done) return;
    double dot = 0, sum = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) {
        dot += parts[2 * i];
        sum += parts[2 * i + 1];
    }
    dot = block_sum(dot);
    sum = block_sum(sum);
    if (!(dot > 0)) {
        if (threadIdx.x == 0) cg->done = 2;
        return;
    }
    double before = cg->rr, alpha = before / dot, mean = paired ? sum / cg->free : 0, rr = 0, largest = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            f.x[i] += alpha * f.q[i];
            double t = r[i] - alpha * (kq[i] - mean);
            r[i] = t;
            rr += t * t;
            largest = fmax(largest, fabs(t));
        }
    rr = block_sum(rr);
    largest = block_max(largest);
    double ratio = rr / before;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) f.q[i] = (float)(r[i] + ratio * f.q[i]);
    if (threadIdx.x == 0) {
        cg->rr = rr;
        cg->largest = largest;
        cg->steps++;
        if (largest <= cg->floor || (largest <= cg->aim && rr <= cg->limit) || cg->steps >= cg->most || rr == 0) cg->done = 1;
    }
}

__device__ __forceinline__ bool leaves(const Set &f, u32 i, double &share) {
    double x = f.x[i], end = x > 0 ? f.high[i] : f.low[i];
    share = end / x;
    return x > 0 ? x > end + 1e-12 * fabs(end) : x < end - 1e-12 * fabs(end);
}

// Pins variables that leave their piece at its end: all of them if fewer than one in `few` leaves, else the 1/part that meets its
// end first, flagged in `fresh`. Then the sum is put right, and x goes to q for the next product.
extern "C" __global__ void pin(u32 m, Set f, State *state, Cg *cg, const double *taken, u32 part, u32 few, u32 paired, u8 *fresh) {
    __shared__ u32 histogram[1024], groups[32];
    __shared__ int limit;
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    double count = 0, free = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            free += 1;
            double share;
            if (leaves(f, i, share)) {
                count += 1;
                atomicAdd(&histogram[min(1023, max(0, (int)(share * 1024)))], 1);
            }
        }
    u32 out = (u32)block_sum(count), all = (u32)block_sum(free);
    if (out == 0) {
        if (threadIdx.x == 0) {
            state->out = 0;
            state->left = all;
        }
        return;
    }
    if (threadIdx.x < 32) {
        u32 sum = 0;
        for (int i = 0; i < 32; i++) sum += histogram[threadIdx.x * 32 + i];
        groups[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int at = 1023;
        if (out > all / few) {
            u32 sum = 0;
            int g = 0;
            while (g < 31 && (sum + groups[g]) * part < out) sum += groups[g++];
            at = g * 32;
            while (at < g * 32 + 31) {
                sum += histogram[at];
                if (sum * part >= out) break;
                at++;
            }
        }
        limit = at;
    }
    __syncthreads();
    double pinned = 0, held = 0, moving = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) {
        double share;
        fresh[i] = 0;
        if (f.mask[i] && leaves(f, i, share) && min(1023, max(0, (int)(share * 1024))) <= limit) {
            fresh[i] = 1;
            f.x[i] = f.x[i] > 0 ? f.high[i] : f.low[i];
            f.mask[i] = 0;
            pinned += 1;
        }
        if (f.mask[i]) moving += f.x[i];
        else held += f.x[i];
    }
    u32 left = all - (u32)block_sum(pinned);
    held = block_sum(held);
    moving = block_sum(moving);
    double shift = paired && left ? (-*taken - held - moving) / left : 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) {
        if (f.mask[i]) f.x[i] += shift;
        f.q[i] = (float)f.x[i];
    }
    if (threadIdx.x == 0) {
        state->out = out;
        state->left = left;
        cg->done = 0;
    }
}

extern "C" __global__ void cg_again(Cg *cg) { cg->done = 0; }

// q = x of pinned variables, 0 elsewhere; or x everywhere.
extern "C" __global__ void load_q(u32 m, Set f, u32 pinned) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m) f.q[i] = (float)(pinned && f.mask[i] ? 0 : f.x[i]);
}

// When the set has shrunk: moves of pinned variables are kept by variable, their product goes into the slopes, their sum into `taken`.
extern "C" __global__ void keep_moves(u32 m, Set f, const u32 *list, double *moves, u8 *moving, u32 all) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m && (all || !f.mask[i])) {
        moves[list[i]] = f.x[i];
        moving[list[i]] = f.mask[i];
    }
}

extern "C" __global__ void add_taken(u32 m, Set f, double *taken) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (!f.mask[i]) sum += f.x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *taken += sum;
}

extern "C" __global__ void compact(u32 m, const u32 *kept, Set f, const double *kq, const u32 *list, const u32 *rows, Set to, u32 *to_list, u32 *to_rows) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = kept[a];
    to.slope[a] = f.slope[i] + kq[i];
    to.low[a] = f.low[i];
    to.high[a] = f.high[i];
    to.d[a] = f.d[i];
    to.x[a] = f.x[i];
    to.q[a] = (float)f.x[i];
    to.mask[a] = 1;
    to_list[a] = list[i];
    to_rows[a] = rows[i];
}

// ---------------------------------------------------------------- the step of a round

// The moves of all variables of F, within their pieces, with sum zero if it is kept. One block.
extern "C" __global__ void settle(u32 m, const u32 *list, const double *moves, const u8 *moving, Set f, u32 paired, double *step, u8 *flags) {
    double sum = 0, free = 0;
    for (u32 a = threadIdx.x; a < m; a += blockDim.x) {
        u32 i = list[a];
        double t = fmin(fmax(moves[i], f.low[a]), f.high[a]);
        f.x[a] = t;
        sum += t;
        free += moving[i];
    }
    sum = block_sum(sum);
    free = block_sum(free);
    double shift = paired && free > 0 ? sum / free : 0, rise = 0, fall = 0;
    for (u32 a = threadIdx.x; a < m; a += blockDim.x) {
        double t = f.x[a];
        if (moving[list[a]]) t = fmin(fmax(t - shift, f.low[a]), f.high[a]);
        f.x[a] = t;
        if (t > 0) rise += t;
        else fall -= t;
    }
    rise = block_sum(rise);
    fall = block_sum(fall);
    // What is left over shortens the moves on the longer side.
    double up = paired && rise > fall ? fall / rise : 1, down = paired && fall > rise ? rise / fall : 1;
    for (u32 a = threadIdx.x; a < m; a += blockDim.x) {
        double t = f.x[a] * (f.x[a] > 0 ? up : down);
        step[a] = t;
        flags[a] = t != 0;
    }
}

extern "C" __global__ void pick_columns(u32 m, const u32 *kept, const u32 *list, const u32 *order, const double *step, u32 *variables, u32 *rows, double *values) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = kept[a];
    variables[a] = list ? list[i] : i;
    rows[a] = order[variables[a]];
    values[a] = step[i];
}

extern "C" __global__ void search_parts(u32 m, const u32 *kept, const u32 *variables, const double *values, const double *slopes, Variables v, const double *kd, double *parts) {
    double slope = 0, curvature = 0;
    for (u32 a = blockIdx.x * blockDim.x + threadIdx.x; a < m; a += gridDim.x * blockDim.x) {
        u32 i = variables[a];
        slope += values[a] * slopes[kept[a]];
        curvature += values[a] * (kd[i] + v.d[i] * values[a]);
    }
    slope = block_sum(slope);
    curvature = block_sum(curvature);
    if (threadIdx.x == 0) {
        parts[2 * blockIdx.x] = slope;
        parts[2 * blockIdx.x + 1] = curvature;
    }
}

// From 0.7 on the whole step is taken: it still lowers the objective, and pinned variables reach their ends.
extern "C" __global__ void search(const double *parts, u32 blocks, State *state) {
    double slope = 0, curvature = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) {
        slope += parts[2 * i];
        curvature += parts[2 * i + 1];
    }
    slope = block_sum(slope);
    curvature = block_sum(curvature);
    if (threadIdx.x == 0) {
        double t = slope < 0 ? (curvature > 0 ? -slope / curvature : 1) : 0;
        state->slope = slope;
        state->curvature = curvature;
        state->step = t >= 0.7 ? 1 : t;
    }
}

// Values within rounding of an end of the box, or of a kink, are put on it.
extern "C" __global__ void move_beta(u32 m, const u32 *variables, const double *values, const State *state, Variables v) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = variables[a];
    double lo = v.lo[i], hi = v.hi[i], d = state->step * values[a], b = v.beta[i] + d;
    double width = isinf(lo) || isinf(hi) ? fmax(fabs(b), fabs(d)) : hi - lo, near = 1e-9 * width;
    if (b - lo <= near) b = lo;
    else if (hi - b <= near) b = hi;
    else if (v.eps[i] > 0 && fabs(b) <= near) b = 0;
    v.beta[i] = b;
    v.g[i] += v.d[i] * d;
}

extern "C" __global__ void move_g(u32 n, Variables v, const double *kd, const State *state) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v.g[i] += state->step * kd[i];
}

// g = Kβ + p + dβ for variables `from..from + n`, from the scores Kβ.
extern "C" __global__ void set_g(u32 n, u32 from, Variables v, const double *scores, const double *p) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v.g[from + i] = scores[i] + p[from + i] + v.d[from + i] * v.beta[from + i];
}

// ---------------------------------------------------------------- Nyström preconditioner
//
// P = C W⁻¹ Cᵀ + μI with W = K over r centres and C = K(F, centres): P⁻¹v = (v − C (μW + CᵀC)⁻¹ Cᵀv) / μ. Sums are double precision, so
// that neither W nor C has to be factored, and rows that are pinned are simply taken out of CᵀC.

#define PANEL 64

// parts[split] = Σ c cᵀ over the split's part of the listed rows of C (row-major, r columns), lower tiles only.
extern "C" __global__ void __launch_bounds__(256) centre_sums(const float *c, u32 r, const u32 *list, const u32 *kept, u32 m, u32 splits, double *parts) {
    // Tile (i, j), j ≤ i, from the number of the block.
    u32 i = (u32)((sqrt(8.0 * blockIdx.x + 1) - 1) / 2);
    while ((i + 1) * (i + 2) / 2 <= blockIdx.x) i++;
    while (i * (i + 1) / 2 > blockIdx.x) i--;
    u32 j = blockIdx.x - i * (i + 1) / 2, t = threadIdx.x;
    __shared__ __align__(16) float left[16][64], right[16][64];
    u32 per = (m + splits - 1) / splits, from = blockIdx.y * per, to = min(m, from + per);
    double sums[4][4] = {};
    for (u32 at = from; at < to; at += 16) {
        __syncthreads();
        u32 row = t / 16, column = t % 16 * 4;
        float4 a = make_float4(0, 0, 0, 0), b = a;
        if (at + row < to) {
            u32 position = kept ? kept[at + row] : at + row;
            const float *line = c + (u64)list[position] * r;
            a = *(const float4 *)(line + i * 64 + column);
            b = *(const float4 *)(line + j * 64 + column);
        }
        *(float4 *)&left[row][column] = a;
        *(float4 *)&right[row][column] = b;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < 16; k++) {
            float4 x = *(const float4 *)&left[k][t / 16 * 4], y = *(const float4 *)&right[k][t % 16 * 4];
            double xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            #pragma unroll
            for (int p = 0; p < 4; p++)
                #pragma unroll
                for (int q = 0; q < 4; q++) sums[p][q] = fma(xs[p], ys[q], sums[p][q]);
        }
    }
    #pragma unroll
    for (int p = 0; p < 4; p++)
        #pragma unroll
        for (int q = 0; q < 4; q++)
            parts[((u64)blockIdx.y * gridDim.x + blockIdx.x) * 4096 + (t / 16 * 4 + p) * 64 + t % 16 * 4 + q] = sums[p][q];
}

// total += sign·Σ parts, both triangles.
extern "C" __global__ void centre_add(const double *parts, u32 tiles, u32 splits, double sign, u32 r, double *total) {
    u32 i = (u32)((sqrt(8.0 * blockIdx.x + 1) - 1) / 2);
    while ((i + 1) * (i + 2) / 2 <= blockIdx.x) i++;
    while (i * (i + 1) / 2 > blockIdx.x) i--;
    u32 j = blockIdx.x - i * (i + 1) / 2;
    for (u32 e = threadIdx.x; e < 4096; e += blockDim.x) {
        double sum = 0;
        for (u32 s = 0; s < splits; s++) sum += parts[((u64)s * tiles + blockIdx.x) * 4096 + e];
        u64 row = i * 64 + e / 64, column = j * 64 + e % 64;
        double value = total[row * r + column] + sign * sum;
        total[row * r + column] = value;
        if (i != j) total[column * r + row] = value;
    }
}

// g = total + μ·w, and a ridge on the diagonal.
extern "C" __global__ void centre_system(u32 r, const double *total, const double *w, double mu, double ridge, double *g) {
    u64 e = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (e < (u64)r * r) g[e] = (total ? total[e] : 0) + mu * w[e] + (e / r == e % r ? ridge : 0);
}

// In-place inverse of a symmetric positive definite matrix by block Gauss–Jordan, three launches per panel of 64: the inverse of the
// diagonal block, the panels, the rest.
extern "C" __global__ void __launch_bounds__(1024) invert_block(double *g, u32 r, u32 k, double *inverse, int *broken) {
    __shared__ double a[PANEL][PANEL + 1];
    __shared__ double column[PANEL];
    u32 t = threadIdx.x;
    for (u32 e = t; e < PANEL * PANEL; e += 1024) a[e / PANEL][e % PANEL] = g[(u64)(k * PANEL + e / PANEL) * r + k * PANEL + e % PANEL];
    __syncthreads();
    for (u32 p = 0; p < PANEL; p++) {
        double pivot = a[p][p];
        if (!(pivot > 0)) {
            if (t == 0) *broken = 1;
            pivot = 1;
        }
        if (t < PANEL) column[t] = a[t][p];
        __syncthreads();
        if (t < PANEL) a[p][t] = t == p ? 1 / pivot : a[p][t] / pivot;
        __syncthreads();
        for (u32 e = t; e < PANEL * PANEL; e += 1024) {
            u32 i = e / PANEL, j = e % PANEL;
            if (i != p) a[i][j] = j == p ? -column[i] * a[p][p] : fma(-column[i], a[p][j], a[i][j]);
        }
        __syncthreads();
    }
    for (u32 e = t; e < PANEL * PANEL; e += 1024) inverse[e] = a[e / PANEL][e % PANEL];
}

// row panel = inverse·(row panel of g), column panel = copy of that of g. Block b handles 64 columns (rows) b of the matrix.
extern "C" __global__ void __launch_bounds__(256) invert_panels(const double *g, u32 r, u32 k, const double *inverse, double *row, double *column) {
    __shared__ double a[PANEL][PANEL / 2 + 1], b[PANEL / 2][PANEL + 1];
    u32 t = threadIdx.x, at = blockIdx.x * PANEL;
    for (u32 e = t; e < PANEL * PANEL; e += 256) column[(u64)(at + e / PANEL) * PANEL + e % PANEL] = g[(u64)(at + e / PANEL) * r + k * PANEL + e % PANEL];
    double sums[4][4] = {};
    // Two halves fit the shared memory.
    for (u32 half = 0; half < PANEL; half += PANEL / 2) {
        __syncthreads();
        for (u32 e = t; e < PANEL * PANEL / 2; e += 256) {
            a[e / (PANEL / 2)][e % (PANEL / 2)] = inverse[e / (PANEL / 2) * PANEL + half + e % (PANEL / 2)];
            b[e / PANEL][e % PANEL] = g[(u64)(k * PANEL + half + e / PANEL) * r + at + e % PANEL];
        }
        __syncthreads();
        for (u32 p = 0; p < PANEL / 2; p++)
            #pragma unroll
            for (int x = 0; x < 4; x++)
                #pragma unroll
                for (int y = 0; y < 4; y++) sums[x][y] = fma(a[t / 16 * 4 + x][p], b[p][t % 16 * 4 + y], sums[x][y]);
    }
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) row[(u64)(t / 16 * 4 + x) * r + at + t % 16 * 4 + y] = sums[x][y];
}

// g −= column·row off the panels; the panels themselves become row and −column·inverse, their crossing the inverse.
extern "C" __global__ void __launch_bounds__(256) invert_rest(double *g, u32 r, u32 k, const double *inverse, const double *row, const double *column) {
    __shared__ double a[PANEL][PANEL / 2 + 1], b[PANEL / 2][PANEL + 1];
    u32 t = threadIdx.x, i0 = blockIdx.y, j0 = blockIdx.x;
    if (i0 == k) {
        for (u32 e = t; e < PANEL * PANEL; e += 256) {
            u32 i = e / PANEL, j = e % PANEL;
            g[(u64)(k * PANEL + i) * r + j0 * PANEL + j] = j0 == k ? inverse[e] : row[(u64)i * r + j0 * PANEL + j];
        }
        return;
    }
    double sums[4][4] = {};
    for (u32 half = 0; half < PANEL; half += PANEL / 2) {
        __syncthreads();
        for (u32 e = t; e < PANEL * PANEL / 2; e += 256) {
            a[e / (PANEL / 2)][e % (PANEL / 2)] = column[(u64)(i0 * PANEL + e / (PANEL / 2)) * PANEL + half + e % (PANEL / 2)];
            u32 i = half + e / PANEL, j = e % PANEL;
            b[e / PANEL][j] = j0 == k ? inverse[i * PANEL + j] : row[(u64)i * r + j0 * PANEL + j];
        }
        __syncthreads();
        for (u32 p = 0; p < PANEL / 2; p++)
            #pragma unroll
            for (int x = 0; x < 4; x++)
                #pragma unroll
                for (int y = 0; y < 4; y++) sums[x][y] = fma(a[t / 16 * 4 + x][p], b[p][t % 16 * 4 + y], sums[x][y]);
    }
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) {
            double *to = g + (u64)(i0 * PANEL + t / 16 * 4 + x) * r + j0 * PANEL + t % 16 * 4 + y;
            *to = j0 == k ? -sums[x][y] : *to - sums[x][y];
        }
}

// residual[i] = k(z, z) − cᵀ W⁻¹ c for the rows of C from `first` on, one block each: how much of the kernel the centres leave out.
extern "C" __global__ void centre_residual(const float *c, u32 r, u32 first, const double *inverse, double *residual) {
    const float *line = c + (u64)(first + blockIdx.x) * r;
    double sum = 0;
    for (u32 i = threadIdx.x / 32; i < r; i += blockDim.x / 32) {
        double own = 0;
        for (u32 j = threadIdx.x % 32; j < r; j += 32) own = fma(inverse[(u64)i * r + j], (double)line[j], own);
        sum = fma((double)line[i], own, sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) residual[blockIdx.x] = 1 - sum;
}

// Parts of Cᵀv over the free rows; v null: ones.
extern "C" __global__ void __launch_bounds__(256) gather_parts(const float *c, u32 r, const u32 *list, u32 m, Set f, const double *v, double *parts, const Cg *cg, u32 force) {
    if (!force && cg->done) return;
    u32 per = (m + gridDim.x - 1) / gridDim.x, from = blockIdx.x * per, to = min(m, from + per);
    for (u32 column = threadIdx.x * 4; column < r; column += 1024) {
        double s[4] = {0, 0, 0, 0};
        #pragma unroll 4
        for (u32 i = from; i < to; i++) {
            if (!f.mask[i]) continue;
            double t = v ? v[i] : 1;
            float4 x = *(const float4 *)(c + (u64)list[i] * r + column);
            s[0] += t * x.x;
            s[1] += t * x.y;
            s[2] += t * x.z;
            s[3] += t * x.w;
        }
        #pragma unroll
        for (int a = 0; a < 4; a++) parts[(u64)blockIdx.x * r + column + a] = s[a];
    }
}

// w = Σ parts; 256 threads for 32 columns.
extern "C" __global__ void gather_sum(u32 r, u32 blocks, const double *parts, double *w, const Cg *cg, u32 force) {
    if (!force && cg->done) return;
    __shared__ double sums[8][32];
    u32 column = blockIdx.x * 32 + threadIdx.x % 32, g = threadIdx.x / 32;
    double sum = 0;
    for (u32 b = g; b < blocks; b += 8) sum += parts[(u64)b * r + column];
    sums[g][threadIdx.x % 32] = sum;
    __syncthreads();
    if (g == 0) {
        for (int a = 1; a < 8; a++) sum += sums[a][threadIdx.x];
        w[column] = sum;
    }
}

// u = g·w, a warp per row.
extern "C" __global__ void centre_solve(u32 r, const double *g, const double *w, double *u, const Cg *cg, u32 force) {
    if (!force && cg->done) return;
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= r) return;
    double sum = 0;
    for (u32 j = lane; j < r; j += 32) sum = fma(g[(u64)i * r + j], w[j], sum);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) u[i] = sum;
}

// z = (v − C u) / μ on the free rows, a warp per row; v null: ones.
extern "C" __global__ void __launch_bounds__(256) spread(const float *c, u32 r, const u32 *list, u32 m, Set f, const double *v, const double *u, double mu, double *z, const Cg *cg, u32 force) {
    if (!force && cg->done) return;
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= m) return;
    if (!f.mask[i]) {
        if (lane == 0) z[i] = 0;
        return;
    }
    const float *line = c + (u64)list[i] * r;
    double sum = 0;
    for (u32 k = lane * 4; k < r; k += 128) {
        float4 x = *(const float4 *)(line + k);
        sum = fma((double)x.x, u[k], fma((double)x.y, u[k + 1], fma((double)x.z, u[k + 2], fma((double)x.w, u[k + 3], sum))));
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) z[i] = ((v ? v[i] : 1) - sum) / mu;
}

// The two halves of a preconditioned step: before and after z = P⁻¹ r. `ones` = P⁻¹·1 keeps the sum.
extern "C" __global__ void pcg_residual(u32 m, Set f, double *r, const double *kq, const double *parts, u32 blocks, Cg *cg, u32 paired) {
    if (cg->done) return;
    double dot = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) dot += parts[2 * i];
    dot = block_sum(dot);
    if (!(dot > 0)) {
        if (threadIdx.x == 0) cg->done = 2;
        return;
    }
    double alpha = cg->rz / dot, sum = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            f.x[i] += alpha * f.q[i];
            double t = r[i] - alpha * kq[i];
            r[i] = t;
            sum += t;
        }
    double mean = paired ? block_sum(sum) / cg->free : 0, rr = 0, largest = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            double t = r[i] - mean;
            r[i] = t;
            rr += t * t;
            largest = fmax(largest, fabs(t));
        }
    rr = block_sum(rr);
    largest = block_max(largest);
    if (threadIdx.x == 0) {
        cg->rr = rr;
        cg->largest = largest;
        cg->steps++;
        if (largest <= cg->floor || (largest <= cg->aim && rr <= cg->limit) || cg->steps >= cg->most || rr == 0) cg->done = 1;
    }
}

extern "C" __global__ void pcg_direction(u32 m, Set f, const double *r, const double *z, const double *ones, Cg *cg, u32 paired, u32 first) {
    if (!first && cg->done) return;
    double sum = 0, all = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) {
            sum += z[i];
            all += ones[i];
        }
    sum = block_sum(sum);
    all = block_sum(all);
    double share = paired ? sum / all : 0, rz = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (f.mask[i]) rz += r[i] * (z[i] - share * ones[i]);
    rz = block_sum(rz);
    double ratio = first ? 0 : rz / cg->rz;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        f.q[i] = f.mask[i] ? (float)(z[i] - share * ones[i] + ratio * (first ? 0 : f.q[i])) : 0;
    __syncthreads();
    if (threadIdx.x == 0) cg->rz = rz;
}
