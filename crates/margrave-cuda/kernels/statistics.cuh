// Statistics of pairs of points in the precision REAL (float or double), tile by tile.
//
// A tile of 64 × 64 entries is computed by 256 threads, 4 × 4 entries each. Features pass through shared memory in
// chunks of 16 columns; the sum over a chunk is added to the total, so that a chain of additions has a length of 16 plus the
// number of chunks. The order of summation depends on the features alone, never on which rows and columns were
// picked or on where a tile lies: an entry has the same bits in every request, and K is exactly symmetric.
// Distances are sums over differences, so that there is no cancellation and k(x, x) = 1 exactly.
//
// Sparse rows are spread into the same shared tiles, and chunks in which all rows of both sides are zero are skipped.

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef SINGLE
typedef float REAL;
#define NAME(x) x##_f32
#define EXP expf
#define TANH tanhf
#define SQRT sqrtf
#define ABS fabsf
#define FMA fmaf
#else
typedef double REAL;
#define NAME(x) x##_f64
#define EXP exp
#define TANH tanh
#define SQRT sqrt
#define ABS fabs
#define FMA fma
#endif

#define TILE 64
#define STEP 16
// Keeps rows of a tile 16-byte aligned and spreads them over the banks.
#define LINE (TILE + 4)
#define THREADS 256

// Points, and which of them are used: `pick[i]`, or `first + i` without a list.
struct Side {
    const REAL *values;
    const u64 *starts;   // of sparse rows; null: dense
    const u32 *columns;
    const u32 *pick;
    u32 first;
    u32 count;
    u32 dims;
    u32 unused;
};

struct Kernel {
    double gamma;
    double coef0;
    u32 name;  // the order of `Name` in arithmetic.rs
    u32 degree;
};

enum { DOT, SQUARED, ABSOLUTE, CHI };

__device__ __forceinline__ u64 row_of(const Side &side, u32 i) {
    u32 at = i < side.count ? i : side.count - 1;
    return side.pick ? side.pick[at] : side.first + at;
}

__device__ __forceinline__ REAL power(REAL base, u32 exponent) {
    REAL result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

// The kernel as a function of its statistic.
template <int STATISTIC> __device__ __forceinline__ REAL finish(const Kernel &kernel, REAL s) {
    REAL gamma = (REAL)kernel.gamma;
    if (STATISTIC == DOT) {
        if (kernel.name == 0) return s;
        REAL t = FMA(gamma, s, (REAL)kernel.coef0);
        return kernel.name == 1 ? power(t, kernel.degree) : TANH(t);
    }
    if (STATISTIC == SQUARED) {
        if (kernel.name == 3) return EXP(-gamma * s);
        if (kernel.name == 4) {
            REAL t = SQRT(6 * gamma * s);
            return (1 + t) * EXP(-t);
        }
        REAL t = SQRT(10 * gamma * s);
        return (1 + t + t * t / 3) * EXP(-t);
    }
    return EXP(-gamma * s);
}

template <int STATISTIC> __device__ __forceinline__ REAL term(REAL x, REAL z, REAL sum) {
    if (STATISTIC == DOT) return FMA(x, z, sum);
    REAL difference = x - z;
    if (STATISTIC == SQUARED) return FMA(difference, difference, sum);
    if (STATISTIC == ABSOLUTE) return sum + ABS(difference);
    REAL total = x + z;
    return total > 0 ? sum + difference * difference / total : sum;
}

// Aligned for loads of 16 bytes.
struct __align__(16) Shared {
    REAL rows[STEP][LINE];
    REAL cols[STEP][LINE];
    u64 at[2 * TILE];
    u64 end[2 * TILE];
    u32 next[2];
};

// The next chunk in which some row of the sides has a value; `dims` if there is none.
__device__ __forceinline__ u32 next_chunk(Shared &shared, u32 t, const Side &a, const Side &b, u32 from) {
    __syncthreads();
    if (t == 0) shared.next[0] = a.dims;
    __syncthreads();
    if (t < 2 * TILE) {
        const u64 *starts = t < TILE ? a.starts : b.starts;
        const u32 *columns = t < TILE ? a.columns : b.columns;
        u32 column = a.dims;
        if (!starts) column = from;
        else if (shared.at[t] < shared.end[t]) column = columns[shared.at[t]];
        if (column < a.dims) atomicMin(&shared.next[0], column / STEP * STEP);
    }
    __syncthreads();
    return shared.next[0];
}

__device__ __forceinline__ void load_dense(REAL (*tile)[LINE], const Side &side, const u64 *rows, u32 t, u32 from) {
    u32 k = t % STEP;
    #pragma unroll
    for (int i = 0; i < TILE * STEP / THREADS; i++) {
        u32 r = t / STEP + i * (THREADS / STEP);
        tile[k][r] = from + k < side.dims ? side.values[rows[i] * side.dims + from + k] : (REAL)0;
    }
}

__device__ __forceinline__ void load_sparse(Shared &shared, REAL (*tile)[LINE], const Side &side, u32 t, u32 first, u32 from) {
    for (u32 i = t; i < STEP * LINE; i += THREADS) (&tile[0][0])[i] = 0;
    __syncthreads();
    if (t >= first && t < first + TILE) {
        u64 at = shared.at[t], end = shared.end[t];
        for (; at < end; at++) {
            u32 column = side.columns[at];
            if (column >= from + STEP) break;
            tile[column - from][t - first] = side.values[at];
        }
        shared.at[t] = at;
    }
}

__device__ __forceinline__ void load4(const REAL *from, REAL (&to)[4]) {
#ifdef SINGLE
    float4 v = *(const float4 *)from;
    to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
#else
    double2 v = *(const double2 *)from, w = *(const double2 *)(from + 2);
    to[0] = v.x; to[1] = v.y; to[2] = w.x; to[3] = w.y;
#endif
}

template <int STATISTIC>
__device__ __forceinline__ void add_terms(const Shared &shared, u32 t, u32 k, REAL (&part)[4][4]) {
    REAL x[4], z[4];
    load4(&shared.rows[k][t / 16 * 4], x);
    load4(&shared.cols[k][t % 16 * 4], z);
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) part[i][j] = term<STATISTIC>(x[i], z[j], part[i][j]);
}

// The statistics of rows `r0..` and columns `c0..`; thread t has rows 4·(t / 16).. and columns 4·(t % 16)...
template <int STATISTIC>
__device__ __forceinline__ void statistics(Shared &shared, const Side &a, u32 r0, const Side &b, u32 c0, REAL (&sums)[4][4]) {
    u32 t = threadIdx.x;
    bool sparse = a.starts || b.starts;
    u64 rows[TILE * STEP / THREADS], cols[TILE * STEP / THREADS];
    #pragma unroll
    for (int i = 0; i < TILE * STEP / THREADS; i++) {
        u32 r = t / STEP + i * (THREADS / STEP);
        rows[i] = row_of(a, r0 + r);
        cols[i] = row_of(b, c0 + r);
    }
    if (sparse) {
        __syncthreads();
        if (t < 2 * TILE) {
            const u64 *starts = t < TILE ? a.starts : b.starts;
            u64 row = t < TILE ? row_of(a, r0 + t) : row_of(b, c0 + t - TILE);
            shared.at[t] = starts ? starts[row] : 0;
            shared.end[t] = starts ? starts[row + 1] : 0;
        }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = 0;
    for (u32 from = 0;; from += STEP) {
        if (sparse) from = next_chunk(shared, t, a, b, from);
        else __syncthreads();
        if (from >= a.dims) break;
        if (a.starts) load_sparse(shared, shared.rows, a, t, 0, from);
        else load_dense(shared.rows, a, rows, t, from);
        if (b.starts) load_sparse(shared, shared.cols, b, t, TILE, from);
        else load_dense(shared.cols, b, cols, t, from);
        __syncthreads();
        REAL part[4][4];
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++) part[i][j] = 0;
        if (STATISTIC != CHI && from + STEP <= a.dims) {
            #pragma unroll
            for (int k = 0; k < STEP; k++) add_terms<STATISTIC>(shared, t, k, part);
        } else {
            // Fewer features, or a division, which is a long piece of code.
            u32 left = min(STEP, a.dims - from);
            #pragma unroll 1
            for (u32 k = 0; k < left; k++) add_terms<STATISTIC>(shared, t, k, part);
        }
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += part[i][j];
    }
}

// A tile of statistics in shared memory, over the memory that computed it: the kernel is applied in a rolled loop, as sixteen
// copies of exp would be most of the program.
union __align__(16) Memory {
    Shared work;
    REAL tile[TILE][TILE + 1];
};

template <int STATISTIC>
__device__ __forceinline__ void statistics_tile(Memory &memory, const Side &a, u32 r0, const Side &b, u32 c0) {
    REAL sums[4][4];
    statistics<STATISTIC>(memory.work, a, r0, b, c0, sums);
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) memory.tile[threadIdx.x / 16 * 4 + i][threadIdx.x % 16 * 4 + j] = sums[i][j];
    __syncthreads();
}
