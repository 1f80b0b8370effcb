// Chains of dual problems by pair steps on K in the memory of the card, one block per chain: transcribed for the processor in
// `solver/decomposition/chain.rs` of margrave-core.
//
// A thread has the gradients of up to R rows in registers, rows t, t + 1024, …. A step takes the variable whose objective falls fastest as
// it grows, and the partner with the largest gain for the pair; choices are made by single-precision keys, ties by the smaller
// index. Both rows of K are read once. A launch does a limited number of steps, so that an interrupt is noticed.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 1024
#define WARPS (THREADS / 32)
#define LEAST_CURVATURE 1e-6f
#define BALANCED 1e-13
#define PASSES 8
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

// `Task` of src/chains.rs.
struct Task {
    u32 kernel;
    u32 links;
    u64 first;  // link
    u32 link;
    u32 begun;  // 0: the current link is to be started; 2: its scores are to be continued from; 1: its gradient is there
    u64 limit;  // steps of a link
};

// `Link` of src/chains.rs.
struct Link {
    double ratio;
    double eps;
    double d;
    double tol;
    double violation;
    u64 steps;
    u64 reached;
};

struct Request {
    const float *matrices;  // n × n each
    const double *p, *lo, *hi;  // n per link
    double *beta, *scores;  // n per link
    double *gradient, *other, *change;  // n per chain
    Task *tasks;
    Link *links;
    u32 *open;  // number of chains that have not ended
    u32 n;
    u32 budget;  // steps of a launch
};

struct Best {
    u32 key;
    u32 at;
    double value;
};

struct Shared {
    Best up[WARPS];
    Best down[WARPS];
    Best gain[WARPS];
    double sums[3][WARPS];
};

// In the order of the numbers.
__device__ __forceinline__ u32 key_of(float x) {
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The entry of the smallest key of a warp; ties by index.
__device__ __forceinline__ Best smallest(Best own) {
    u32 key = __reduce_min_sync(~0u, own.key);
    u32 at = __reduce_min_sync(~0u, own.key == key ? own.at : ~0u);
    u32 who = __ballot_sync(~0u, own.key == key && own.at == at);
    return {key, at, __shfl_sync(~0u, own.value, __ffs(who) - 1)};
}

// The same of a block, from the entries of its warps.
__device__ __forceinline__ Best of_block(const Best *entries) {
    Best own = entries[threadIdx.x % 32];
    return smallest(own);
}

// Sums over the block, the same for every thread: the order does not depend on anything.
__device__ __forceinline__ void block_sums(Shared &s, double &a, double &b, double &c) {
    for (int o = 16; o; o >>= 1) {
        a += __shfl_xor_sync(~0u, a, o);
        b += __shfl_xor_sync(~0u, b, o);
        c += __shfl_xor_sync(~0u, c, o);
    }
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) s.sums[0][warp] = a, s.sums[1][warp] = b, s.sums[2][warp] = c;
    __syncthreads();
    a = s.sums[0][lane], b = s.sums[1][lane], c = s.sums[2][lane];
    for (int o = 16; o; o >>= 1) {
        a += __shfl_xor_sync(~0u, a, o);
        b += __shfl_xor_sync(~0u, b, o);
        c += __shfl_xor_sync(~0u, c, o);
    }
}

__device__ __forceinline__ double clamped(double x, double lo, double hi) {
    return fmin(fmax(x, lo), hi);
}

// β of a link as it was where it was free and scaled where it was at its bound, with a sum of zero; false if there is none.
__device__ bool keep_free(Shared &s, u32 n, const double *before, const double *scaled, const double *lo, const double *hi, double *kept) {
    for (u32 r = threadIdx.x; r < n; r += THREADS) {
        double b = scaled[r];
        bool bound = b != 0 && (b >= hi[r] * (1 - 1e-9) || b <= lo[r] * (1 - 1e-9));
        kept[r] = bound ? b : clamped(before[r], lo[r], hi[r]);
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double sum = 0, size = 0, free = 0;
        for (u32 r = threadIdx.x; r < n; r += THREADS) {
            double b = kept[r];
            sum += b;
            size += fabs(b);
            free += b != 0 && b > lo[r] && b < hi[r];
        }
        block_sums(s, sum, size, free);
        if (fabs(sum) <= BALANCED * size) return true;
        if (free == 0) return false;
        double share = -sum / free;
        for (u32 r = threadIdx.x; r < n; r += THREADS) {
            double b = kept[r];
            if (b != 0 && b > lo[r] && b < hi[r]) kept[r] = b > 0 ? clamped(b + share, 0, hi[r]) : clamped(b + share, lo[r], 0);
        }
    }
    return false;
}

// β of the current link and the gradient there: the better of two guesses, as `LinkState::start`.
__device__ void start(Shared &s, const Request &q, const Task &task, const float *K, double *gradient) {
    u32 n = q.n;
    u64 now = (task.first + task.link) * n;
    const double *p = q.p + now, *lo = q.lo + now, *hi = q.hi + now;
    double *beta = q.beta + now;
    if (task.link == 0) {
        for (u32 r = threadIdx.x; r < n; r += THREADS) {
            beta[r] = 0;
            gradient[r] = p[r];
        }
        return;
    }
    const Link link = q.links[task.first + task.link];
    const double *before = beta - n, *scores = q.scores + now - n;
    double *kept = q.other + (u64)blockIdx.x * n, *change = q.change + (u64)blockIdx.x * n;
    for (u32 r = threadIdx.x; r < n; r += THREADS) beta[r] = clamped(link.ratio * before[r], lo[r], hi[r]);
    bool two = keep_free(s, n, before, beta, lo, hi, kept);
    double scaled_dual = 0, kept_dual = 0, unused = 0;
    if (two) {
        for (u32 r = threadIdx.x; r < n; r += THREADS) change[r] = kept[r] - beta[r];
        __syncthreads();
    }
    for (u32 r = threadIdx.x; r < n; r += THREADS) {
        double f = link.ratio * scores[r], b = beta[r];
        scaled_dual -= 0.5 * b * f + p[r] * b + link.eps * fabs(b) + 0.5 * link.d * b * b;
        gradient[r] = f;
        if (!two) continue;
        // Eight entries at a time are on their way; most changes are zero where few variables are free.
        for (u32 i = 0; i < n; i += 8) {
            double by[8];
            bool any = false;
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                by[k] = i + k < n ? change[i + k] : 0;
                any |= by[k] != 0;
            }
            if (!any) continue;
            float entries[8];
            #pragma unroll
            for (int k = 0; k < 8; k++) entries[k] = K[(u64)min(i + k, n - 1) * n + r];
            #pragma unroll
            for (int k = 0; k < 8; k++) f += by[k] * (double)entries[k];
        }
        b = kept[r];
        kept_dual -= 0.5 * b * f + p[r] * b + link.eps * fabs(b) + 0.5 * link.d * b * b;
        // The scores of the other guess wait in the place of the scores of this link.
        q.scores[now + r] = f;
    }
    block_sums(s, scaled_dual, kept_dual, unused);
    bool keep = two && kept_dual > scaled_dual;
    for (u32 r = threadIdx.x; r < n; r += THREADS) {
        if (keep) beta[r] = kept[r];
        double f = keep ? q.scores[now + r] : gradient[r];
        gradient[r] = f + p[r] + link.d * beta[r];
    }
}

// What a variable may do: bits 0 and 1, whether it may grow or fall; bits 2 and 3, whether it is ≥ 0 and > 0.
__device__ __forceinline__ u32 sides(double b, double lo, double hi) {
    return (b < hi) | (b > lo) << 1 | (b >= 0) << 2 | (b > 0) << 3;
}

template <int R>
__device__ __forceinline__ void run(const Request &q) {
    __shared__ Shared s;
    Task task = q.tasks[blockIdx.x];
    if (task.link >= task.links) return;
    const u32 n = q.n, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float *K = q.matrices + (u64)task.kernel * n * n;
    double *stored = q.gradient + (u64)blockIdx.x * n;
    u32 budget = q.budget;
    while (task.link < task.links) {
        u64 index = task.first + task.link, now = index * n;
        const Link link = q.links[index];
        if (task.begun == 0) start(s, q, task, K, stored);
        if (task.begun == 2)
            for (u32 r = threadIdx.x; r < n; r += THREADS) stored[r] = q.scores[now + r] + q.p[now + r] + link.d * q.beta[now + r];
        task.begun = 1;
        __syncthreads();
        const double *lo = q.lo + now, *hi = q.hi + now;
        double *beta = q.beta + now;
        u64 steps = link.steps;
        double g[R];
        u64 flags = 0;
        #pragma unroll
        for (int k = 0; k < R; k++) {
            u32 r = threadIdx.x + k * THREADS;
            g[k] = r < n ? stored[r] : 0;
            if (r < n) flags |= (u64)sides(beta[r], lo[r], hi[r]) << 4 * k;
        }
        double violation = 0;
        bool ended = false, reached = false;
        while (true) {
            Best up = {~0u, ~0u, INFINITE}, down = {~0u, ~0u, -INFINITE};
            #pragma unroll
            for (int k = 0; k < R; k++) {
                u32 side = (u32)(flags >> 4 * k), r = threadIdx.x + k * THREADS;
                double grow = g[k] + (side & 4 ? link.eps : -link.eps), fall = g[k] + (side & 8 ? link.eps : -link.eps);
                u32 a = key_of((float)grow), b = ~key_of((float)fall);
                if (side & 1 && (a < up.key || up.at == ~0u)) up = {a, r, grow};
                if (side & 2 && (b < down.key || down.at == ~0u)) down = {b, r, fall};
            }
            up = smallest(up), down = smallest(down);
            if (lane == 0) s.up[warp] = up, s.down[warp] = down;
            __syncthreads();
            up = of_block(s.up), down = of_block(s.down);
            violation = up.at == ~0u || down.at == ~0u ? 0 : down.value - up.value;
            if (!(violation > link.tol)) {
                ended = reached = true;
                break;
            }
            if (steps >= task.limit) {
                ended = true;
                break;
            }
            if (budget == 0) break;
            const u32 i = up.at;
            const float *row = K + (u64)i * n;
            float entries[R];
            #pragma unroll
            for (int k = 0; k < R; k++) {
                u32 r = threadIdx.x + k * THREADS;
                entries[k] = r < n ? row[r] : 0;
            }
            double bi = beta[i], end_i = hi[i];
            Best gain = {~0u, ~0u, 0};
            float most = 0;
            const float twice = (float)(2 + 2 * link.d);
            #pragma unroll
            for (int k = 0; k < R; k++) {
                u32 side = (u32)(flags >> 4 * k), r = threadIdx.x + k * THREADS;
                double fall = g[k] + (side & 8 ? link.eps : -link.eps);
                float by = (float)(fall - up.value);
                float own = by * by / fmaxf(twice - 2 * entries[k], LEAST_CURVATURE);
                if (side & 2 && by > 0 && own > most) {
                    most = own;
                    gain = {~__float_as_uint(own), r, fall};
                }
            }
            gain = smallest(gain);
            if (lane == 0) s.gain[warp] = gain;
            __syncthreads();
            gain = of_block(s.gain);
            if (gain.at == ~0u) {
                ended = true;
                break;
            }
            const u32 j = gain.at;
            const float *column = K + (u64)j * n;
            float others[R];
            #pragma unroll
            for (int k = 0; k < R; k++) {
                u32 r = threadIdx.x + k * THREADS;
                others[k] = r < n ? column[r] : 0;
            }
            double bj = beta[j], end_j = lo[j];
            double curvature = fmax(2 + 2 * link.d - 2 * (double)row[j], (double)LEAST_CURVATURE);
            if (link.eps > 0 && bi < 0) end_i = fmin(end_i, 0.0);
            if (link.eps > 0 && bj > 0) end_j = fmax(end_j, 0.0);
            double by = fmin(fmin((gain.value - up.value) / curvature, end_i - bi), bj - end_j);
            if (!(by > 0)) {
                ended = true;
                break;
            }
            // All threads have read β before its owners change it.
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < R; k++) {
                u32 r = threadIdx.x + k * THREADS;
                g[k] += by * ((double)entries[k] - (double)others[k]);
                if (r == i) {
                    double b = by >= end_i - bi ? end_i : bi + by;
                    beta[i] = b;
                    g[k] += link.d * by;
                    flags = flags & ~(15ull << 4 * k) | (u64)sides(b, lo[i], hi[i]) << 4 * k;
                }
                if (r == j) {
                    double b = by >= bj - end_j ? end_j : bj - by;
                    beta[j] = b;
                    g[k] -= link.d * by;
                    flags = flags & ~(15ull << 4 * k) | (u64)sides(b, lo[j], hi[j]) << 4 * k;
                }
            }
            steps++;
            budget--;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < R; k++) {
            u32 r = threadIdx.x + k * THREADS;
            if (r < n) {
                stored[r] = g[k];
                if (ended) q.scores[now + r] = g[k] - q.p[now + r] - link.d * beta[r];
            }
        }
        if (threadIdx.x == 0) {
            q.links[index].steps = steps;
            q.links[index].violation = violation;
            q.links[index].reached = reached;
        }
        __syncthreads();
        if (!ended) break;
        task.link++;
        task.begun = 0;
    }
    if (threadIdx.x == 0) {
        q.tasks[blockIdx.x] = task;
        if (task.link < task.links) atomicAdd(q.open, 1u);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) chains2(Request q) {
    run<2>(q);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) chains5(Request q) {
    run<5>(q);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) chains8(Request q) {
    run<8>(q);
}
