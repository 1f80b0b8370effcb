// Features F = K·L⁻ᵀ on few centres, and the partial Cholesky factors that choose them, in double precision.
//
// Matrices are row-major. Products have the form AᵀB, the sum running over the rows of both, so that tiles of both are read along
// their rows; sizes are padded by zeros to whole tiles. A block of 256 threads computes a tile of 128 × 64 numbers by tensor cores; a
// warp has 32 × 32 of them, in chunks of 16 rows that pass through two buffers of shared memory. Sums are added up in the order of the rows.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DOWN 128
#define ACROSS 64
#define STEP 16
// Doubles of a line in shared memory: lines of a fragment must start in different banks.
#define LEFT (DOWN + 4)
#define RIGHT (ACROSS + 4)
#define THREADS 256

__device__ __forceinline__ void copy16(void *to, const void *from) {
    u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}

// c += a·b for 8 × 8 numbers and 4 rows.
__device__ __forceinline__ void multiply(double (&c)[2], double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

// Which rows and tiles matter. UPPER_RIGHT: b is upper triangular; UPPER_LEFT: a is; LOWER: only tiles with numbers on or below the diagonal are wanted.
enum { WHOLE, UPPER_RIGHT, UPPER_LEFT, LOWER };

// c[i, j] = keep·c[i, j] + factor·Σ a[k, i]·b[k, j] over `depth` rows k.
extern "C" __global__ void __launch_bounds__(THREADS, 2) product(const double *a, u64 wide_a, const double *b, u64 wide_b, double *c, u64 wide_c, u32 depth, double factor, double keep, u32 shape) {
    extern __shared__ __align__(16) u8 memory[];
    double *left = (double *)memory, *right = left + 2 * STEP * LEFT;
    u32 t = threadIdx.x, lane = t % 32, w = t / 32, r0 = blockIdx.x * DOWN, c0 = blockIdx.y * ACROSS;
    if (shape == LOWER && r0 + DOWN <= c0) return;
    if (shape == UPPER_RIGHT) depth = min(depth, c0 + ACROSS);
    if (shape == UPPER_LEFT) depth = min(depth, r0 + DOWN);
    double acc[4][4][2];
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j][0] = acc[i][j][1] = 0;
    auto load = [&](u32 from, u32 buffer) {
        for (u32 e = t; e < STEP * DOWN / 2; e += THREADS) {
            u32 k = e / (DOWN / 2), i = e % (DOWN / 2) * 2;
            copy16(left + (buffer * STEP + k) * LEFT + i, a + (from + k) * wide_a + r0 + i);
        }
        for (u32 e = t; e < STEP * ACROSS / 2; e += THREADS) {
            u32 k = e / (ACROSS / 2), j = e % (ACROSS / 2) * 2;
            copy16(right + (buffer * STEP + k) * RIGHT + j, b + (from + k) * wide_b + c0 + j);
        }
        asm volatile("cp.async.commit_group;");
    };
    u32 row = w / 2 * 32 + lane / 4, column = w % 2 * 32 + lane / 4, buffer = 0;
    if (depth) load(0, 0);
    for (u32 from = 0; from < depth; from += STEP, buffer ^= 1) {
        if (from + STEP < depth) load(from + STEP, buffer ^ 1);
        else asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < STEP; k += 4) {
            const double *x = left + (buffer * STEP + k + lane % 4) * LEFT + row, *z = right + (buffer * STEP + k + lane % 4) * RIGHT + column;
            double one[4], two[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                one[i] = x[i * 8];
                two[i] = z[i * 8];
            }
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) multiply(acc[i][j], one[i], two[j]);
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            double2 *to = (double2 *)(c + (u64)(r0 + row + i * 8) * wide_c + c0 + w % 2 * 32 + j * 8 + lane % 4 * 2);
            double2 old = keep != 0 ? *to : make_double2(0, 0);
            *to = make_double2(fma(factor, acc[i][j][0], keep * old.x), fma(factor, acc[i][j][1], keep * old.y));
        }
}

// ---------------------------------------------------------------- vectors

// out[i] = Σ w[i, j]·x[j] for j ≥ i, w upper triangular; a warp per row.
extern "C" __global__ void __launch_bounds__(THREADS) upper_times(const double *w, u32 size, const double *x, double *out) {
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= size) return;
    double sum = 0;
    for (u32 j = i / 32 * 32 + lane; j < size; j += 32) sum = fma(w[(u64)i * size + j], x[j], sum);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) out[i] = sum;
}

// part[y, j] = Σ w[i, j]·x[i] over the 128 rows i of part y.
extern "C" __global__ void __launch_bounds__(THREADS) times_upper(const double *w, u32 size, const double *x, double *part) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x, from = blockIdx.y * 128;
    if (j >= size) return;
    double sum = 0;
    // Below the diagonal there are zeros.
    for (u32 i = from; i < min(min(from + 128, size), j + 1); i++) sum = fma(w[(u64)i * size + j], x[i], sum);
    part[(u64)blockIdx.y * size + j] = sum;
}

// out[i] = keep·out[i] + Σ part[y, i], in the order of the parts.
extern "C" __global__ void add_up(const double *part, u32 parts, u32 count, double keep, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double sum = 0;
    for (u32 y = 0; y < parts; y++) sum += part[(u64)y * count + i];
    out[i] = keep != 0 ? fma(keep, out[i], sum) : sum;
}

// out = weights·(dots − shift).
extern "C" __global__ void curvature(const double *weights, const double *dots, double shift, u32 count, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = weights[i] * (dots[i] - shift);
}

// ---------------------------------------------------------------- systems

// Rows of `m` numbers (double or, if `narrow`, single precision) as rows of `size` doubles times √weight, zeros beyond; the rows from `count` on are zero.
extern "C" __global__ void weigh(const void *from, u32 narrow, u32 m, const double *weights, u32 count, u32 size, double *out) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (j >= size) return;
    double value = 0;
    if (r < count && j < m) value = sqrt(weights[r]) * (narrow ? (double)((const float *)from)[(u64)r * m + j] : ((const double *)from)[(u64)r * m + j]);
    out[(u64)r * size + j] = value;
}

// part[y, j] = Σ √weight·row over 128 rows: the weighted sum of the rows that `weigh` has made.
extern "C" __global__ void weighted_sum(const double *rows, u32 size, const double *weights, u32 count, double *part) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x, from = blockIdx.y * 128;
    if (j >= size) return;
    double sum = 0;
    for (u32 r = from; r < min(from + 128, count); r++) sum = fma(sqrt(weights[r]), rows[(u64)r * size + j], sum);
    part[(u64)blockIdx.y * size + j] = sum;
}

// The upper triangle of a square from the lower one, in tiles of 32.
extern "C" __global__ void mirror(double *a, u32 size) {
    __shared__ double tile[32][33];
    u32 i0 = blockIdx.x * 32, j0 = blockIdx.y * 32;
    if (i0 < j0) return;
    for (u32 r = threadIdx.x / 32; r < 32; r += THREADS / 32) tile[r][threadIdx.x % 32] = a[(u64)(i0 + r) * size + j0 + threadIdx.x % 32];
    __syncthreads();
    for (u32 r = threadIdx.x / 32; r < 32; r += THREADS / 32) {
        u32 i = j0 + r, j = i0 + threadIdx.x % 32;
        if (i < j) a[(u64)i * size + j] = tile[threadIdx.x % 32][r];
    }
}

// The square root of the diagonal of I + r − hhᵀ/bottom, at least 1, inverted.
extern "C" __global__ void roots(const double *r, u32 size, u32 m, const double *h, double over, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) out[i] = i < m ? rsqrt(fmax(1 + r[(u64)i * size + i] - h[i] * h[i] * over, 1.0)) : 1;
}

// r = the system with its diagonal scaled to 1, and the identity beyond m; lower tiles are enough.
extern "C" __global__ void assemble(double *r, u32 size, u32 m, const double *h, double over, const double *roots) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (j >= size || j / 64 > i / 64) return;
    double value = i == j ? 1 : 0;
    if (i < m && j < m) value = (value + r[(u64)i * size + j] - h[i] * h[j] * over) * (roots[i] * roots[j]);
    r[(u64)i * size + j] = value;
}

// z = I of the panel from `from` on (`height` rows of `size` numbers) minus z; columns before it are zero.
extern "C" __global__ void identity_minus(double *z, u32 size, u32 from) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (j >= size) return;
    double *at = z + (u64)i * size + j;
    *at = j < from ? 0 : j < from + DOWN ? (j == from + i ? 1 : 0) : -*at;
}

// ---------------------------------------------------------------- pivots

// out[k, c] = f[k, list[c]], zero from `count` on.
extern "C" __global__ void gather_columns(const double *f, u64 wide, const u32 *list, u32 count, u32 width, double *out) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y;
    if (c < width) out[(u64)k * width + c] = c < count ? f[k * wide + list[c]] : 0;
}

// out[i] = Σ f[k, i]² over `rows` rows.
extern "C" __global__ void column_squares(const double *f, u64 wide, u32 rows, u32 count, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double sum = 0;
    for (u32 k = 0; k < rows; k++) sum = fma(f[k * wide + i], f[k * wide + i], sum);
    out[i] = sum;
}
