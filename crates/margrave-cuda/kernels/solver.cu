// The set Newton solver on the card: sets, conjugate gradients, pinning, steps. The host's part is in src/solver.
//
//   min ½ βᵀKβ + Σ (pβ + eps|β| + ½dβ²),   lo ≤ β ≤ hi,   Σβ kept if there is a bias
//
// g = Kβ + p + dβ is the slope of the smooth part. In a round the variables of the set F move within one piece of their term
// (with a kink at zero: one side of it), where the objective is quadratic.
//
// Everything that adds up does so in a fixed order: runs on one card are bit-identical.

#include "variables.cuh"
// Rows and columns of a stored tile of K over F.
#define SIDE 128

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

#include "matrix.cuh"

// ---------------------------------------------------------------- conjugate gradients on the free part of F

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

// Waits until all blocks of the grid have come here. `arrived` is zero when the program starts; all blocks run at the same time.
__device__ __forceinline__ void meet(u32 *arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 ticket = atomicAdd(arrived, 1), all = (ticket / gridDim.x + 1) * gridDim.x, now;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
        } while (now < all);
        __threadfence();
    }
    __syncthreads();
}

// Steps of conjugate gradients in one program, its blocks meeting between products and updates: product, step length, move, residual,
// next direction. done = 2: no positive curvature. Starting a program takes as long as a product with some thousand variables.
template <typename T>
__device__ __forceinline__ void cg_run(const T *tiles, u32 m, u32 across, u32 chunk, u32 stay, double scale, const Set &f, float *by_row, float *by_column, double *r, double *kq, double *parts, Cg *cg, u32 paired, u32 most, u32 *arrived) {
    u32 works = across * ((across + chunk - 1) / chunk), first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    double *others = parts + 2 * across;
    for (u32 step = 0; step < most && !cg->done; step++) {
        for (u32 work = blockIdx.x; work < works; work += gridDim.x) {
            __syncthreads();
            multiply<T>(tiles, across, chunk, stay, f.q, by_row, by_column, work);
        }
        meet(arrived);
        for (u32 j = blockIdx.x; j < across; j += gridDim.x) {
            __syncthreads();
            sum_row(m, across, chunk, scale, f, by_row, by_column, 0, kq, parts, j);
        }
        meet(arrived);
        double dot = 0, sum = 0;
        for (u32 i = threadIdx.x; i < across; i += blockDim.x) {
            dot += parts[2 * i];
            sum += parts[2 * i + 1];
        }
        block_both<false>(dot, sum);
        if (!(dot > 0)) {
            if (first == 0) cg->done = 2;
            return;
        }
        double before = cg->rr, alpha = before / dot, mean = paired ? sum / cg->free : 0, rr = 0, largest = 0;
        for (u32 i = first; i < m; i += stride)
            if (f.mask[i]) {
                f.x[i] += alpha * f.q[i];
                double t = r[i] - alpha * (kq[i] - mean);
                r[i] = t;
                rr += t * t;
                largest = fmax(largest, fabs(t));
            }
        block_both<true>(rr, largest);
        if (threadIdx.x == 0) {
            others[2 * blockIdx.x] = rr;
            others[2 * blockIdx.x + 1] = largest;
        }
        meet(arrived);
        rr = 0;
        largest = 0;
        for (u32 i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
            rr += others[2 * i];
            largest = fmax(largest, others[2 * i + 1]);
        }
        block_both<true>(rr, largest);
        double ratio = rr / before;
        for (u32 i = first; i < m; i += stride)
            if (f.mask[i]) f.q[i] = (float)(r[i] + ratio * f.q[i]);
        if (first == 0) {
            cg->rr = rr;
            cg->largest = largest;
            cg->steps++;
            if (largest <= cg->floor || (largest <= cg->aim && rr <= cg->limit) || cg->steps >= cg->most || rr == 0) cg->done = 1;
        }
        meet(arrived);
    }
}
extern "C" __global__ void __launch_bounds__(256, 2) cg_run_u16(const u16 *tiles, u32 m, u32 across, u32 chunk, u32 stay, double scale, Set f, float *by_row, float *by_column, double *r, double *kq, double *parts, Cg *cg, u32 paired, u32 most, u32 *arrived) {
    cg_run(tiles, m, across, chunk, stay, scale, f, by_row, by_column, r, kq, parts, cg, paired, most, arrived);
}
extern "C" __global__ void __launch_bounds__(256, 2) cg_run_f32(const float *tiles, u32 m, u32 across, u32 chunk, u32 stay, double scale, Set f, float *by_row, float *by_column, double *r, double *kq, double *parts, Cg *cg, u32 paired, u32 most, u32 *arrived) {
    cg_run(tiles, m, across, chunk, stay, scale, f, by_row, by_column, r, kq, parts, cg, paired, most, arrived);
}

__device__ __forceinline__ bool leaves(const Set &f, u32 i, double &share) {
    double x = f.x[i], end = x > 0 ? f.high[i] : f.low[i];
    share = end / x;
    return x > 0 ? x > end + 1e-12 * fabs(end) : x < end - 1e-12 * fabs(end);
}

// Pins variables that leave their piece at its end: all of them if fewer than one in `few` leaves, else the 1/part that meets its
// end first, flagged in `fresh`. Then the sum is put right, and x goes to q for the next product. With `after` it follows a run of conjugate
// gradients, whose state the host reads with that of the pins: nothing is done before that run is.
extern "C" __global__ void pin(u32 m, Set f, State *state, Cg *cg, const double *taken, u32 part, u32 few, u32 paired, u8 *fresh, u32 after) {
    __shared__ u32 histogram[1024], groups[32];
    __shared__ int limit;
    if (after) {
        if (threadIdx.x == 0) state->cg = *cg;
        if (!cg->done) return;
    }
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

// out[i] = Σ part[split][i], in the order of the splits.
extern "C" __global__ void sum_parts(const double *part, u32 splits, u32 rows, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    double sum = 0;
    for (u32 split = 0; split < splits; split++) sum += part[(u64)split * rows + i];
    out[i] = sum;
}

// out = a − b.
extern "C" __global__ void subtract(u32 n, const double *a, const double *b, double *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] - b[i];
}

// ---------------------------------------------------------------- how good a point is, and its sum

// The largest value of wβ − eps|β| − ½dβ² over the box.
__device__ __forceinline__ double largest_value(double w, double lo, double hi, double eps, double d) {
    double best = 0;  // β = 0 lies in every box
    for (int side = -1; side <= 1; side += 2) {
        double slope = side * w - eps, end = side > 0 ? hi : -lo;
        if (!(slope > 0) || !(end > 0)) continue;
        double at = d > 0 ? fmin(slope / d, end) : end;
        best = fmax(best, at * (slope - 0.5 * d * at));
    }
    return best;
}

// Parts of the sums of the Fenchel–Young terms with the bias −mu, and of the dual objective.
extern "C" __global__ void gap_parts(Variables v, const double *p, u32 n, const State *state, double *parts) {
    double gap = 0, dual = 0, mu = state->mu;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double b = v.beta[i], d = v.d[i], eps = v.eps[i], w = mu - v.g[i] + d * b, own = eps * fabs(b) + 0.5 * d * b * b;
        gap += own - w * b + largest_value(w, v.lo[i], v.hi[i], eps, d);
        dual -= own + p[i] * b + 0.5 * b * (v.g[i] - p[i] - d * b);
    }
    gap = block_sum(gap);
    dual = block_sum(dual);
    if (threadIdx.x == 0) {
        parts[2 * blockIdx.x] = gap;
        parts[2 * blockIdx.x + 1] = dual;
    }
}

extern "C" __global__ void gap_sum(const double *parts, u32 blocks, State *state) {
    double gap = 0, dual = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) {
        gap += parts[2 * i];
        dual += parts[2 * i + 1];
    }
    gap = block_sum(gap);
    dual = block_sum(dual);
    if (threadIdx.x == 0) {
        state->gap = gap;
        state->dual = dual;
    }
}

// Whether a variable is well inside its box, so that it can take a share of what rounding has left of the sum.
__device__ __forceinline__ bool inside(double b, double lo, double hi) {
    double margin = 1e-4 * (isinf(hi - lo) ? fabs(b) : hi - lo);
    return b != 0 && b > lo + margin && b < hi - margin;
}

extern "C" __global__ void balance_parts(Variables v, u32 n, double *parts) {
    double sum = 0, count = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += v.beta[i];
        if (inside(v.beta[i], v.lo[i], v.hi[i])) count += 1;
    }
    sum = block_sum(sum);
    count = block_sum(count);
    if (threadIdx.x == 0) {
        parts[2 * blockIdx.x] = sum;
        parts[2 * blockIdx.x + 1] = count;
    }
}

extern "C" __global__ void balance(Variables v, u32 n, const double *parts, u32 blocks, double total) {
    double sum = 0, count = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) {
        sum += parts[2 * i];
        count += parts[2 * i + 1];
    }
    sum = block_sum(sum);
    count = block_sum(count);
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && count > 0 && inside(v.beta[i], v.lo[i], v.hi[i]))
        v.beta[i] = fmin(fmax(v.beta[i] + (total - sum) / count, v.lo[i]), v.hi[i]);
}

// g = Kβ + p + dβ for variables `from..from + n`, from the scores Kβ.
extern "C" __global__ void set_g(u32 n, u32 from, Variables v, const double *scores, const double *p) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v.g[from + i] = scores[i] + p[from + i] + v.d[from + i] * v.beta[from + i];
}

#include "precondition.cuh"
