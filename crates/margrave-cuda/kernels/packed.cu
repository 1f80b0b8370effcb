// Entries of kernels of the squared distance by tensor cores, for the solver.
//
// A point, less the centre and times a power of two, is x = high + low in half precision, together 22 bits. Then
// x·z = high·high + high·low + low·high up to 2⁻²² |x||z|, in single precision, and |x − z|² = |x|² + |z|² − 2 x·z. An entry has an
// error of some slope·(|x| + |z|)²·2⁻²²: src/packed.rs decides whether that is good enough.
//
// A block of 256 threads computes tiles of 128 × 128 entries; a warp has 32 × 64 of them. Rows of the left side stay in shared
// memory while tiles of the right side pass through two buffers. Points of more than 64 features come in chunks (`MANY`), each summed
// on its own, as the sums of tensor cores are not rounded to nearest.
//
// The order of summation depends on the columns alone.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SIDE 128
#define CHUNK 64
// Halves of a row in a chunk: high parts, then low parts; and in shared memory, where rows must start in different banks.
#define WIDTH (2 * CHUNK)
#define LINE (WIDTH + 8)
#define THREADS 256

struct Kernel {
    double gamma;
    double coef0;
    u32 name;  // the order of `Name` in arithmetic.rs
    u32 degree;
};

// Points: `pick[i]`, or `first + i` without a list. `PackedSide` in src/packed.rs.
struct Side {
    const u16 *rows;
    const float *norms;
    const u32 *pick;
    u32 first;
    u32 count;
    u32 chunks;
    u32 steps;     // of 16 features, in the last chunk
    float unscale; // −2 divided by the square of the power of two
    u32 unused;
};

__device__ __forceinline__ u64 row_of(const Side &side, u32 i) {
    u32 at = min(i, side.count - 1);
    return side.pick ? side.pick[at] : side.first + at;
}

// ---------------------------------------------------------------- packing

__device__ __forceinline__ u16 half_of(float x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
__device__ __forceinline__ float float_of(u16 h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

// Packs the points order[i] of dense (or, with `starts`, sparse) values, a warp each.
extern "C" __global__ void __launch_bounds__(THREADS) pack(const float *values, const u64 *starts, const u32 *columns, const u32 *order, u32 n, u32 dims, u32 chunks, float scale, u16 *rows, float *norms) {
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= n) return;
    u64 row = order[i];
    u16 *to = rows + (u64)i * chunks * WIDTH;
    double sum = 0;
    if (starts) {
        for (u32 k = lane; k < chunks * WIDTH; k += 32) to[k] = 0;
        __syncwarp();
        for (u64 at = starts[row] + lane; at < starts[row + 1]; at += 32) {
            float x = values[at];
            u32 k = columns[at], place = k / CHUNK * WIDTH + k % CHUNK;
            sum += (double)x * x;
            u16 high = half_of(x * scale);
            to[place] = high;
            to[place + CHUNK] = half_of(x * scale - float_of(high));
        }
    } else {
        for (u32 k = lane; k < chunks * CHUNK; k += 32) {
            float x = k < dims ? values[row * dims + k] : 0.f;
            u32 place = k / CHUNK * WIDTH + k % CHUNK;
            sum += (double)x * x;
            u16 high = half_of(x * scale);
            to[place] = high;
            to[place + CHUNK] = half_of(x * scale - float_of(high));
        }
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) norms[i] = (float)sum;
}

// ---------------------------------------------------------------- tiles

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void load_matrices(u32 (&to)[4], const u16 *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(p)));
}

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float root_of(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define LOG2E 1.4426950408889634f

// The kernel of a squared distance; `factor` is −γ·log2(e), or 6γ and 10γ for the Matérn kernels.
__device__ __forceinline__ float finish(u32 name, float factor, float s) {
    s = fmaxf(s, 0.f);
    if (name == 3) return exp2_of(factor * s);
    float t = root_of(factor * s);
    float p = name == 4 ? 1.f + t : fmaf(t, fmaf(t, 1.f / 3.f, 1.f), 1.f);
    return p * exp2_of(-LOG2E * t);
}

__device__ __forceinline__ void load_rows(u16 *to, const Side &side, u32 from, u32 chunk) {
    #pragma unroll 2
    for (u32 c = threadIdx.x; c < SIDE * (WIDTH / 8); c += THREADS) {
        u32 r = c / (WIDTH / 8), k = c % (WIDTH / 8);
        copy16(to + r * LINE + k * 8, side.rows + (row_of(side, from + r) * side.chunks + chunk) * WIDTH + k * 8);
    }
}

// acc += the chunk's part of x·z, for the warp's 32 × 64 entries.
__device__ __forceinline__ void add_chunk(float (&acc)[2][8][4], const u16 *left, const u16 *right, u32 steps) {
    u32 lane = threadIdx.x % 32, w = threadIdx.x / 32, down = w / 2 * 32, across = w % 2 * 64;
    #pragma unroll
    for (u32 step = 0; step < CHUNK / 16; step++) {
        if (step >= steps) break;
        u32 high[2][4], low[2][4];
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            const u16 *p = left + (down + i * 16 + lane % 16) * LINE + step * 16 + lane / 16 * 8;
            load_matrices(high[i], p);
            load_matrices(low[i], p + CHUNK);
        }
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 upper[4], lower[4];
            const u16 *p = right + (across + j * 16 + lane % 8 + lane / 16 * 8) * LINE + step * 16 + lane / 8 % 2 * 8;
            load_matrices(upper, p);
            load_matrices(lower, p + CHUNK);
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(acc[i][2 * j], high[i], upper[0], upper[1]);
                multiply(acc[i][2 * j + 1], high[i], upper[2], upper[3]);
            }
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(acc[i][2 * j], high[i], lower[0], lower[1]);
                multiply(acc[i][2 * j + 1], high[i], lower[2], lower[3]);
            }
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(acc[i][2 * j], low[i], upper[0], upper[1]);
                multiply(acc[i][2 * j + 1], low[i], upper[2], upper[3]);
            }
        }
    }
}

__device__ __forceinline__ void clear(float (&acc)[2][8][4]) {
    #pragma unroll
    for (int i = 0; i < 2; i++)
        #pragma unroll
        for (int j = 0; j < 8; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) acc[i][j][k] = 0.f;
}

__device__ __forceinline__ u64 tile_at(u64 i, u64 j, u64 t) { return i * t - i * (i - 1) / 2 + (j - i); }

enum { PRODUCT, TRIANGLE, BLOCK };

// `per` tiles of columns for each block in y.
//   PRODUCT:  part[y][r] = Σ K[r, c]·v[c] over the columns of y; a tile's sums are single precision, those over tiles double
//   TRIANGLE: tiles of the upper triangle, k·65535 in 16 bits; both sides are the same points
//   BLOCK:    out[r·b.count + c] = K[r, c]
template <int MODE, bool MANY>
__device__ __forceinline__ void entries(const Side &a, const Side &b, const Kernel &kernel, const double *v, u32 per, double *part, void *out) {
    extern __shared__ __align__(16) u8 memory[];
    u16 *left = (u16 *)memory, *right = left + (MANY ? 2 : 1) * SIDE * LINE;
    float *norms = (float *)(right + 2 * SIDE * LINE), *factors = norms + 2 * SIDE;
    u32 t = threadIdx.x, lane = t % 32, w = t / 32, r0 = blockIdx.x * SIDE;
    u32 tiles = (b.count + SIDE - 1) / SIDE, first = blockIdx.y * per, last = min(tiles, first + per);
    if (MODE == TRIANGLE) first = max(first, blockIdx.x);
    if (first >= last) return;
    float factor = (float)(kernel.name == 3 ? -kernel.gamma * 1.4426950408889634 : (kernel.name == 4 ? 6 : 10) * kernel.gamma);
    auto load = [&](u32 tile, u32 chunk, u32 buffer, bool rows) {
        if (rows) load_rows(left + (MANY ? buffer * SIDE * LINE : 0), a, r0, chunk);
        load_rows(right + buffer * SIDE * LINE, b, tile * SIDE, chunk);
        if (chunk == 0 && t < SIDE) {
            u32 c = tile * SIDE + t, at = ((tile - first) & 1) * SIDE + t;
            norms[at] = b.norms[row_of(b, c)];
            if (MODE == PRODUCT) factors[at] = c < b.count ? (float)v[c] : 0.f;
        }
        asm volatile("cp.async.commit_group;");
    };
    u32 row = w / 2 * 32 + lane / 4, column = w % 2 * 64 + lane % 4 * 2;
    float own[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) own[i] = a.norms[row_of(a, r0 + row + i * 8)];
    double sums[4] = {0, 0, 0, 0};
    float acc[2][8][4], total[MANY ? 2 : 1][8][4];
    u32 buffer = 0;
    load(first, 0, 0, true);
    for (u32 tile = first; tile < last; tile++) {
        for (u32 chunk = 0; chunk < (MANY ? a.chunks : 1); chunk++, buffer ^= 1) {
            bool ends = !MANY || chunk + 1 == a.chunks;
            if (!ends) load(tile, chunk + 1, buffer ^ 1, MANY);
            else if (tile + 1 < last) load(tile + 1, 0, buffer ^ 1, MANY);
            else asm volatile("cp.async.commit_group;");
            asm volatile("cp.async.wait_group 1;");
            __syncthreads();
            clear(acc);
            add_chunk(acc, left + (MANY ? buffer * SIDE * LINE : 0), right + buffer * SIDE * LINE, ends ? a.steps : CHUNK / 16);
            if (MANY) {
                #pragma unroll
                for (int i = 0; i < 2; i++)
                    #pragma unroll
                    for (int j = 0; j < 8; j++)
                        #pragma unroll
                        for (int k = 0; k < 4; k++) total[MANY ? i : 0][j][k] = chunk ? total[MANY ? i : 0][j][k] + acc[i][j][k] : acc[i][j][k];
                // The buffers are read before the next loads write them.
                if (!ends) __syncthreads();
            }
        }
        const float *n = norms + ((tile - first) & 1) * SIDE, *f = factors + ((tile - first) & 1) * SIDE;
        float part_sums[4] = {0, 0, 0, 0};
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 c = column + j * 8;
            float2 norm = *(const float2 *)(n + c), value = make_float2(0, 0);
            if (MODE == PRODUCT) value = *(const float2 *)(f + c);
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                float d0 = MANY ? total[MANY ? i / 2 : 0][j][i % 2 * 2] : acc[i / 2][j][i % 2 * 2];
                float d1 = MANY ? total[MANY ? i / 2 : 0][j][i % 2 * 2 + 1] : acc[i / 2][j][i % 2 * 2 + 1];
                float k0 = finish(kernel.name, factor, fmaf(a.unscale, d0, own[i] + norm.x));
                float k1 = finish(kernel.name, factor, fmaf(a.unscale, d1, own[i] + norm.y));
                if (MODE == PRODUCT) part_sums[i] = fmaf(k0, value.x, fmaf(k1, value.y, part_sums[i]));
                u32 r = row + i * 8;
                if (MODE == TRIANGLE) {
                    bool inside = r0 + r < a.count;
                    u32 low = inside && tile * SIDE + c < b.count ? (u32)fmaf(k0, 65535.f, 0.5f) : 0;
                    u32 high = inside && tile * SIDE + c + 1 < b.count ? (u32)fmaf(k1, 65535.f, 0.5f) : 0;
                    *(u32 *)((u16 *)out + tile_at(blockIdx.x, tile, tiles) * (SIDE * SIDE) + r * SIDE + c) = low | high << 16;
                }
                if (MODE == BLOCK && r0 + r < a.count) {
                    float *to = (float *)out + (u64)(r0 + r) * b.count + tile * SIDE + c;
                    if (tile * SIDE + c < b.count) to[0] = k0;
                    if (tile * SIDE + c + 1 < b.count) to[1] = k1;
                }
            }
        }
        if (MODE == PRODUCT)
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[i] += (double)part_sums[i];
        __syncthreads();
    }
    if (MODE == PRODUCT) {
        double *both = (double *)memory;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[i] += __shfl_xor_sync(~0u, sums[i], 1);
            sums[i] += __shfl_xor_sync(~0u, sums[i], 2);
            if (lane % 4 == 0) both[w % 2 * SIDE + row + i * 8] = sums[i];
        }
        __syncthreads();
        if (t < SIDE && r0 + t < a.count) part[(u64)blockIdx.y * a.count + r0 + t] = both[t] + both[SIDE + t];
    }
}

// Compiled twice: for points of up to 64 features, and (CHUNKED) of more.
#ifdef CHUNKED
#define MANY_CHUNKS true
#define LEAST_BLOCKS 1
#else
#define MANY_CHUNKS false
#define LEAST_BLOCKS 2
#endif
#define PROGRAM(MODE, name)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS) name(Side a, Side b, Kernel kernel, const double *v, u32 per, double *part, void *out) { \
        entries<MODE, MANY_CHUNKS>(a, b, kernel, v, per, part, out);                                                           \
    }
PROGRAM(PRODUCT, packed_product)
PROGRAM(TRIANGLE, packed_triangle)
PROGRAM(BLOCK, packed_block)
