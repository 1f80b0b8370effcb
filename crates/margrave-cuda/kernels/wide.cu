// Products with K in double precision by tensor cores, for the Gaussian kernel.
//
// −γ|x − z|² = 2γ x·z − γ|x|² − γ|z|² over points less their centre. Unlike a sum over differences this cancels: src/wide.rs bounds the error
// and decides whether it is good enough.
//
// A block of 256 threads computes tiles of 128 × 64 entries; a warp has 32 × 32 of them. Features pass through two buffers of
// shared memory in chunks of 16. An entry depends on its two points alone and K is exactly symmetric: products of coordinates are
// added in the order of the features, with more than 64 features in parts of 32 that are then added in order. Columns are added up in a fixed order that does not depend on the rows: 8 of a tile's
// 64 columns by one thread, one after the other over the 16 tiles of a split, then the 8 threads of a row, then the splits.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ROWS 128
#define COLUMNS 64
#define STEP 16
// Doubles of a row in shared memory: rows must start in different banks.
#define LINE (STEP + 4)
#define THREADS 256
// Features of a part.
#define PART 32
// Tiles of columns that one block adds up: fixed, as it determines the order of summation.
#define TILES 16

struct Kernel {
    double gamma;
    double coef0;
    u32 name;
    u32 degree;
};

// Points: `pick[i]`, or `first + i` without a list. `WideSide` in src/wide.rs.
struct Side {
    const double *rows;
    const double *norms;
    const u32 *pick;
    u32 first;
    u32 count;
    u32 stride; // of a row, a multiple of 4
    u32 unused;
};

__device__ __forceinline__ u64 row_of(const Side &side, u32 i) {
    u32 at = min(i, side.count - 1);
    return side.pick ? side.pick[at] : side.first + at;
}

// sum + rest += x·x, where rest collects what rounding takes away: the result is as good as in twice the precision.
__device__ __forceinline__ void add_square(double x, double &sum, double &rest) {
    double square = __dmul_rn(x, x), lost = fma(x, x, -square), all = __dadd_rn(sum, square), back = __dadd_rn(all, -sum);
    rest += __dadd_rn(__dadd_rn(sum, -__dadd_rn(all, -back)), __dadd_rn(square, -back)) + lost;
    sum = all;
}

// Rows of dense or sparse values of either precision, less the centre, a warp each.
template <typename T>
__device__ __forceinline__ void widen(const T *values, const u64 *starts, const u32 *columns, const double *centre, u32 n, u32 dims, u32 stride, double *rows, double *norms) {
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= n) return;
    double *to = rows + (u64)i * stride, sum = 0, rest = 0;
    if (starts) {
        for (u32 k = lane; k < stride; k += 32) to[k] = 0;
        __syncwarp();
        for (u64 at = starts[i] + lane; at < starts[i + 1]; at += 32) {
            double x = values[at];
            to[columns[at]] = x;
            add_square(x, sum, rest);
        }
    } else {
        for (u32 k = lane; k < stride; k += 32) {
            double x = k < dims ? (double)values[(u64)i * dims + k] - (centre ? centre[k] : 0) : 0;
            to[k] = x;
            add_square(x, sum, rest);
        }
    }
    sum += rest;
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) norms[i] = sum;
}
extern "C" __global__ void __launch_bounds__(THREADS) widen_f32(const float *values, const u64 *starts, const u32 *columns, const double *centre, u32 n, u32 dims, u32 stride, double *rows, double *norms) {
    widen(values, starts, columns, centre, n, dims, stride, rows, norms);
}
extern "C" __global__ void __launch_bounds__(THREADS) widen_f64(const double *values, const u64 *starts, const u32 *columns, const double *centre, u32 n, u32 dims, u32 stride, double *rows, double *norms) {
    widen(values, starts, columns, centre, n, dims, stride, rows, norms);
}

// Dense values less the centre, in single precision.
extern "C" __global__ void narrow_f32(const float *values, const double *centre, u64 total, u32 dims, float *out) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < total) out[i] = (float)((double)values[i] - centre[i % dims]);
}
extern "C" __global__ void narrow_f64(const double *values, const double *centre, u64 total, u32 dims, float *out) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < total) out[i] = (float)(values[i] - centre[i % dims]);
}

__device__ __forceinline__ void copy16(void *to, const void *from) {
    u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}

// c += a·b for 8 × 8 entries and 4 features.
__device__ __forceinline__ void multiply(double (&c)[2], double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

#ifdef HOPPER
// The same for 16 × 8 entries and 8 features: twice as fast there.
__device__ __forceinline__ void multiply_more(double (&upper)[2], double (&lower)[2], double a0, double a1, double a2, double a3, double b0, double b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
                 : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1));
}
#endif

// eˣ for x ≤ 0 (up to rounding), to 2 units of roundoff; below −708 it is e⁻⁷⁰⁸.
__device__ __forceinline__ double exp_of(double x) {
    // By the high word: comparing doubles would take as long as multiplying them.
    if ((u32)__double2hiint(x) > 0xC0862000u) x = -708.0;
    const double shift = 6755399441055744.0;  // 1.5·2⁵²: the low word of a sum with it is the nearest integer
    double t = fma(x, 1.4426950408889634, shift), n = t - shift;
    double r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, x));
    // 1 + r + r²·p(r), p of degree 9 through (eʳ − 1 − r)/r² at the Chebyshev points of |r| ≤ ½ log 2.
    double p = 2.51003758422237e-08;
    p = fma(p, r, 2.7620075892548164e-07);
    p = fma(p, r, 2.7557268480289716e-06);
    p = fma(p, r, 2.480152132234228e-05);
    p = fma(p, r, 0.00019841269863040559);
    p = fma(p, r, 0.0013888888917196736);
    p = fma(p, r, 0.008333333333330065);
    p = fma(p, r, 0.041666666666624164);
    p = fma(p, r, 0.16666666666666669);
    p = fma(p, r, 0.5000000000000001);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    return __hiloint2double(__double2hiint(p) + (__double2loint(t) << 20), __double2loint(p));
}

template <int COUNT> __device__ __forceinline__ void load_rows(double *to, const Side &side, u32 from, u32 feature) {
    #pragma unroll 2
    for (u32 c = threadIdx.x; c < COUNT * (STEP / 2); c += THREADS) {
        u32 r = c / (STEP / 2), k = c % (STEP / 2) * 2;
        if (feature + k < side.stride) copy16(to + r * LINE + k, side.rows + row_of(side, from + r) * side.stride + feature + k);
    }
}

enum { PRODUCT, BLOCK };

// PRODUCT: part[y][r] = Σ K[r, c]·v[c] over the columns of split y. BLOCK: out[r·b.count + c] = K[r, c]. MANY: features come in parts.
template <int MODE, bool MANY> __device__ __forceinline__ void entries(const Side &a, const Side &b, const Kernel &kernel, const double *v, double *out) {
    extern __shared__ __align__(16) u8 memory[];
    double *left = (double *)memory, *right = left + 2 * ROWS * LINE;
    u32 t = threadIdx.x, lane = t % 32, w = t / 32, r0 = blockIdx.x * ROWS;
    u32 row = w / 2 * 32 + lane / 4, column = w % 2 * 32;
    u32 from = blockIdx.y * TILES * COLUMNS, to = min(b.count, from + TILES * COLUMNS);
    double own[4], sums[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int i = 0; i < 4; i++) own[i] = -kernel.gamma * a.norms[row_of(a, r0 + row + i * 8)];
    double twice = 2 * kernel.gamma;
    auto load = [&](u32 c0, u32 feature, u32 buffer) {
        load_rows<ROWS>(left + buffer * ROWS * LINE, a, r0, feature);
        load_rows<COLUMNS>(right + buffer * COLUMNS * LINE, b, c0, feature);
        asm volatile("cp.async.commit_group;");
    };
    u32 buffer = 0;
    load(from, 0, 0);
    for (u32 c0 = from; c0 < to; c0 += COLUMNS) {
        double acc[4][4][2], total[4][4][2];
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++) acc[i][j][0] = acc[i][j][1] = total[i][j][0] = total[i][j][1] = 0;
        for (u32 feature = 0; feature < a.stride; feature += STEP, buffer ^= 1) {
            if (feature + STEP < a.stride) load(c0, feature + STEP, buffer ^ 1);
            else if (c0 + COLUMNS < to) load(c0 + COLUMNS, 0, buffer ^ 1);
            else asm volatile("cp.async.commit_group;");
            asm volatile("cp.async.wait_group 1;");
            __syncthreads();
            const double *x = left + buffer * ROWS * LINE + row * LINE + lane % 4;
            const double *z = right + buffer * COLUMNS * LINE + (column + lane / 4) * LINE + lane % 4;
#ifdef HOPPER
            #pragma unroll
            for (int k = 0; k < STEP; k += 8) {
                if (feature + k + 8 > a.stride) break;
                double one[4][2], two[4][2];
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    #pragma unroll
                    for (int h = 0; h < 2; h++) {
                        one[i][h] = x[i * 8 * LINE + k + 4 * h];
                        two[i][h] = z[i * 8 * LINE + k + 4 * h];
                    }
                #pragma unroll
                for (int i = 0; i < 4; i += 2)
                    #pragma unroll
                    for (int j = 0; j < 4; j++)
                        multiply_more(acc[i][j], acc[i + 1][j], one[i][0], one[i + 1][0], one[i][1], one[i + 1][1], two[j][0], two[j][1]);
            }
            // At the end there may be four features more.
            #pragma unroll
            for (int k = 0; k < STEP; k += 8) {
                if (feature + k + 4 != a.stride) continue;
#else
            #pragma unroll
            for (int k = 0; k < STEP; k += 4) {
                if (feature + k >= a.stride) break;
#endif
                double one[4], two[4];
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    one[i] = x[i * 8 * LINE + k];
                    two[i] = z[i * 8 * LINE + k];
                }
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    #pragma unroll
                    for (int j = 0; j < 4; j++) multiply(acc[i][j], one[i], two[j]);
            }
            __syncthreads();
            if (MANY && ((feature + STEP) % PART == 0 || feature + STEP >= a.stride)) {
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    #pragma unroll
                    for (int j = 0; j < 4; j++)
                        #pragma unroll
                        for (int h = 0; h < 2; h++) {
                            total[i][j][h] += acc[i][j][h];
                            acc[i][j][h] = 0;
                        }
            }
        }
        #pragma unroll
        for (int j = 0; j < 4; j++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 c = c0 + column + j * 8 + lane % 4 * 2 + h;
                double norm = -kernel.gamma * b.norms[row_of(b, c)], value = MODE == PRODUCT && c < to ? v[c] : 0;
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    double k = exp_of(fma(twice, MANY ? total[i][j][h] : acc[i][j][h], own[i] + norm));
                    if (MODE == PRODUCT) sums[i] = fma(k, value, sums[i]);
                    else if (r0 + row + i * 8 < a.count && c < b.count) out[(u64)(r0 + row + i * 8) * b.count + c] = k;
                }
            }
    }
    if (MODE == PRODUCT) {
        double *both = (double *)memory;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[i] += __shfl_xor_sync(~0u, sums[i], 1);
            sums[i] += __shfl_xor_sync(~0u, sums[i], 2);
            if (lane % 4 == 0) both[w % 2 * ROWS + row + i * 8] = sums[i];
        }
        __syncthreads();
        if (t < ROWS && r0 + t < a.count) out[(u64)blockIdx.y * a.count + r0 + t] = both[t] + both[ROWS + t];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) wide_product(Side a, Side b, Kernel kernel, const double *v, double *part) {
    entries<PRODUCT, false>(a, b, kernel, v, part);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) wide_block(Side a, Side b, Kernel kernel, double *out) {
    entries<BLOCK, false>(a, b, kernel, nullptr, out);
}

// For more than 64 features.
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_product_many(Side a, Side b, Kernel kernel, const double *v, double *part) {
    entries<PRODUCT, true>(a, b, kernel, v, part);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_block_many(Side a, Side b, Kernel kernel, double *out) {
    entries<BLOCK, true>(a, b, kernel, nullptr, out);
}

// out[r] = Σ part[split][r], in the order of the splits.
extern "C" __global__ void wide_sum(const double *part, u32 splits, u32 rows, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    double sum = 0;
    for (u32 split = 0; split < splits; split++) sum += part[(u64)split * rows + i];
    out[i] = sum;
}
