// Sums over a block, and what lies on the card: `Variables`, `State` and `Set` of src/solver/state.rs.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef unsigned short u16;
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)

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

// Two sums (with `most`: a sum and a maximum) at once: their latencies overlap. Every sum has the bits of `block_sum`.
template <bool most>
__device__ __forceinline__ void block_both(double &a, double &b) {
    __shared__ double2 warp[33];
    int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
    for (int o = 16; o; o >>= 1) {
        double x = __shfl_xor_sync(~0u, a, o), y = __shfl_xor_sync(~0u, b, o);
        a += x;
        b = most ? fmax(b, y) : b + y;
    }
    __syncthreads();
    if (lane == 0) warp[w] = make_double2(a, b);
    __syncthreads();
    if (w == 0) {
        bool held = lane < (int)(blockDim.x >> 5);
        double s = held ? warp[lane].x : 0, t = held ? warp[lane].y : most ? -INFINITE : 0;
        for (int o = 16; o; o >>= 1) {
            double x = __shfl_xor_sync(~0u, s, o), y = __shfl_xor_sync(~0u, t, o);
            s += x;
            t = most ? fmax(t, y) : t + y;
        }
        if (lane == 0) warp[32] = make_double2(s, t);
    }
    __syncthreads();
    a = warp[32].x;
    b = warp[32].y;
}

// ---------------------------------------------------------------- the variables

struct Variables {
    double *beta, *g;
    const double *lo, *hi, *eps, *d;
};

// A run of conjugate gradients.
struct Cg {
    double rr, rz, aim, floor, limit, largest, base;
    int done, steps, most, free;
};

// What the host reads after each part of a round: `State` in src/solver/state.rs.
struct State {
    double up, low, mu, violation, threshold, step, slope, curvature, gap, dual;
    int free, released, out, left;
    Cg cg;
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

// ---------------------------------------------------------------- the set F

// Variables of F: x is the move, between `low` and `high`; `slope` at the start of the round, kink included.
struct Set {
    double *slope, *low, *high, *d, *x;
    float *q;
    u8 *mask;
};

