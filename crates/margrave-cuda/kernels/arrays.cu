// What is asked of points that live on the card: the same answers, bit for bit, as those of the processor. Sums are added in the
// processor's order, without fused multiplications.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define THREADS 256

__device__ __forceinline__ u64 thread() {
    return blockIdx.x * (u64)blockDim.x + threadIdx.x;
}

// `RowHash` of margrave-core.
struct Hash {
    u64 start;
    u64 column;
    u64 factor;
    u64 sampled;
};

__device__ __forceinline__ u64 mix(const Hash &hash, u64 state, u64 column, double value) {
    if (value == 0) return state;
    u64 word = (u64)__double_as_longlong(value) ^ column * hash.column;
    return ((state << 5 | state >> 59) ^ word) * hash.factor;
}

// Elements at `row` bytes between rows and `column` bytes between columns, to row-major order.
template <typename T>
__device__ __forceinline__ void pack(const char *from, i64 row, i64 column, u64 n, u32 dims, T *to) {
    u64 at = thread();
    if (at < n * dims) to[at] = *(const T *)(from + (i64)(at / dims) * row + (i64)(at % dims) * column);
}

// The smallest position of a value that is not finite.
template <typename T>
__device__ __forceinline__ void check(const T *values, u64 total, u64 *first) {
    u64 worst = ~0ull;
    for (u64 at = thread(); at < total; at += (u64)gridDim.x * blockDim.x) {
        if (!isfinite((double)values[at])) {
            worst = at;
            break;
        }
    }
    if (worst != ~0ull) atomicMin(first, worst);
}

template <typename T>
__device__ __forceinline__ void gather(const T *values, u32 dims, const u32 *rows, u64 count, T *to) {
    u64 at = thread();
    if (at < count * dims) to[at] = values[(u64)rows[at / dims] * dims + at % dims];
}

// Eight sums per row, as `sum_of_squares` of the processor.
template <typename T>
__device__ __forceinline__ void norms(const T *values, u64 n, u32 dims, double *out) {
    u64 row = thread();
    if (row >= n) return;
    const T *own = values + row * dims;
    double sums[8] = {};
    u32 at = 0;
    for (; at + 8 <= dims; at += 8) {
        #pragma unroll
        for (int l = 0; l < 8; l++) {
            double v = own[at + l];
            sums[l] = __dadd_rn(sums[l], __dmul_rn(v, v));
        }
    }
    #pragma unroll
    for (int l = 0; l < 8; l++) {
        if (at + l < dims) {
            double v = own[at + l];
            sums[l] = __dadd_rn(sums[l], __dmul_rn(v, v));
        }
    }
    out[row] = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <typename T>
__device__ __forceinline__ void hashes(const T *values, u64 n, u32 dims, Hash hash, u64 *out) {
    u64 row = thread();
    if (row >= n) return;
    const T *own = values + row * dims;
    u64 state = hash.start;
    if (hash.sampled) {
        for (u64 i = 0; i < hash.sampled; i++) {
            u64 column = i * dims / hash.sampled;
            state = mix(hash, state, column, (double)own[column]);
        }
    } else {
        for (u32 column = 0; column < dims; column++) state = mix(hash, state, column, (double)own[column]);
    }
    out[row] = (state ^ state >> 29) * hash.start;
}

// Counts the pairs of rows that differ.
template <typename T>
__device__ __forceinline__ void compare(const T *values, u32 dims, const u32 *pairs, u64 count, u32 *different) {
    u64 at = thread();
    if (at >= count) return;
    const T *a = values + (u64)pairs[2 * at] * dims, *b = values + (u64)pairs[2 * at + 1] * dims;
    for (u32 column = 0; column < dims; column++) {
        if (a[column] != b[column]) {
            atomicAdd(different, 1u);
            return;
        }
    }
}

// parts[part][column] = Σ of a column over `height` rows, one after the other.
template <typename T>
__device__ __forceinline__ void columns(const T *values, u64 n, u32 dims, u64 height, double *parts) {
    u64 at = thread(), part = at / dims, column = at % dims;
    u64 from = part * height, to = min(n, from + height);
    if (from >= n) return;
    double sum = 0;
    #pragma unroll 8
    for (u64 row = from; row < to; row++) sum += (double)values[row * dims + column];
    parts[part * dims + column] = sum;
}

// The largest sum of squares and of absolute values of a row less the centre, as bits of doubles ≥ 0.
template <typename T>
__device__ __forceinline__ void sizes(const T *values, const double *centre, u64 n, u32 dims, u64 *largest) {
    u64 row = thread();
    double square = 0, absolute = 0;
    if (row < n) {
        const T *own = values + row * dims;
        for (u32 column = 0; column < dims; column++) {
            double x = (double)own[column] - (centre ? centre[column] : 0);
            square = __dadd_rn(square, __dmul_rn(x, x));
            absolute = __dadd_rn(absolute, fabs(x));
        }
    }
    // Bits of numbers ≥ 0 are in the order of the numbers.
    u64 a = (u64)__double_as_longlong(square), b = (u64)__double_as_longlong(absolute);
    for (int o = 16; o; o >>= 1) {
        a = max(a, __shfl_xor_sync(~0u, a, o));
        b = max(b, __shfl_xor_sync(~0u, b, o));
    }
    if (threadIdx.x % 32 == 0) {
        atomicMax(largest, a);
        atomicMax(largest + 1, b);
    }
}

// out[row] = Σ (x − shift), or of its squares.
template <typename T>
__device__ __forceinline__ void sums(const T *values, u64 n, u32 dims, double shift, u32 squared, double *out) {
    u64 row = thread();
    if (row >= n) return;
    const T *own = values + row * dims;
    double sum = 0;
    for (u32 column = 0; column < dims; column++) {
        double x = (double)own[column] - shift;
        sum += squared ? x * x : x;
    }
    out[row] = sum;
}

#define EACH(T, NAME)                                                                                                                    \
    extern "C" __global__ void pack_##NAME(const char *from, i64 row, i64 column, u64 n, u32 dims, T *to) {                              \
        pack(from, row, column, n, dims, to);                                                                                            \
    }                                                                                                                                    \
    extern "C" __global__ void check_##NAME(const T *values, u64 total, u64 *first) {                                                    \
        check(values, total, first);                                                                                                     \
    }                                                                                                                                    \
    extern "C" __global__ void gather_##NAME(const T *values, u32 dims, const u32 *rows, u64 count, T *to) {                             \
        gather(values, dims, rows, count, to);                                                                                           \
    }                                                                                                                                    \
    extern "C" __global__ void norms_##NAME(const T *values, u64 n, u32 dims, double *out) {                                             \
        norms(values, n, dims, out);                                                                                                     \
    }                                                                                                                                    \
    extern "C" __global__ void hashes_##NAME(const T *values, u64 n, u32 dims, Hash hash, u64 *out) {                                    \
        hashes(values, n, dims, hash, out);                                                                                              \
    }                                                                                                                                    \
    extern "C" __global__ void compare_##NAME(const T *values, u32 dims, const u32 *pairs, u64 count, u32 *different) {                  \
        compare(values, dims, pairs, count, different);                                                                                  \
    }                                                                                                                                    \
    extern "C" __global__ void columns_##NAME(const T *values, u64 n, u32 dims, u64 height, double *parts) {                             \
        columns(values, n, dims, height, parts);                                                                                         \
    }                                                                                                                                    \
    extern "C" __global__ void sizes_##NAME(const T *values, const double *centre, u64 n, u32 dims, u64 *largest) {                      \
        sizes(values, centre, n, dims, largest);                                                                                         \
    }                                                                                                                                    \
    extern "C" __global__ void sums_##NAME(const T *values, u64 n, u32 dims, double shift, u32 squared, double *out) {                   \
        sums(values, n, dims, shift, squared, out);                                                                                      \
    }

EACH(float, f32)
EACH(double, f64)

extern "C" __global__ void convert_f32(const float *from, u64 total, double *to) {
    u64 at = thread();
    if (at < total) to[at] = from[at];
}
extern "C" __global__ void convert_f64(const double *from, u64 total, float *to) {
    u64 at = thread();
    if (at < total) to[at] = (float)from[at];
}
