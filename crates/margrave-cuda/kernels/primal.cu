// Newton's method on the primal objective with smoothed losses, for stiff problems. The host's part is in src/solver/primal.rs.
//
//   P(α, μ) = ½ αᵀKα + Σ φᵢ(μ − (Kα)ᵢ − pᵢ) − μ·sum,   φ(w) = max over lo ≤ β ≤ hi of wβ − eps|β| − ½dβ²
//
// α is not bound to the box. Smoothing adds a parabola to each term, so that β*(w), where φ has its maximum, passes from one end of
// the box to the other while w changes by `width`.
//
// Everything that adds up does so in a fixed order: runs on one card are bit-identical.

#include "variables.cuh"

// A term with its parabola, whose middle is that of the box, or of each side of a kink.
struct Term {
    double lo, hi, eps, d, p;
};

__device__ __forceinline__ Term smoothed(const Variables &v, const double *p, u32 i, double width) {
    Term t = {v.lo[i], v.hi[i], v.eps[i], v.d[i], p[i]};
    double across = t.eps > 0 ? fmax(t.hi, -t.lo) : t.hi - t.lo;
    if (isinf(across) || !(across > 0)) return t;
    double added = fmax(0.0, width / across - t.d);
    t.d += added;
    if (t.eps > 0) t.eps = fmax(0.0, t.eps - 0.5 * added * fmin(t.hi, -t.lo));
    else t.p -= 0.5 * added * (t.lo + t.hi);
    return t;
}

// β*(w); `offset`: of the slope in its piece; `free`: whether it is inside of one.
__device__ __forceinline__ double best(const Term &t, double w, double &offset, bool &free) {
    free = false;
    offset = 0;
    if (fabs(w) <= t.eps && t.eps > 0) return fmin(fmax(0.0, t.lo), t.hi);
    offset = w > 0 ? t.eps : -t.eps;
    if (!(t.hi > t.lo)) return t.lo;
    double b = (w - offset) / t.d;
    if (b <= t.lo) return t.lo;
    if (b >= t.hi) return t.hi;
    free = true;
    return b;
}

// scores = Kα, from the slopes.
extern "C" __global__ void primal_scores(Variables v, const double *p, u32 n, double *scores) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) scores[i] = v.g[i] - p[i] - v.d[i] * v.beta[i];
}

// Where a variable goes: to β*, or with `held`, which is used when the width has changed, to where it is, within the box.
__device__ __forceinline__ double place(const Variables &v, const Term &t, u32 i, double score, double mu, u32 held, double &offset, bool &free) {
    if (!held) return best(t, mu - score - t.p, offset, free);
    double b = fmin(fmax(v.beta[i], t.lo), t.hi);
    free = b > t.lo && b < t.hi && (b != 0 || !(t.eps > 0));
    offset = b > 0 ? t.eps : -t.eps;
    return b;
}

// Which variables are inside of a piece; the others are to move to their place. Parts of Σ (α + moves).
extern "C" __global__ void primal_assign(Variables v, const double *p, const double *scores, u32 n, double width, double mu, u32 held, double *moves, u8 *flags, double *parts) {
    double sum = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        Term t = smoothed(v, p, i, width);
        double offset, a = v.beta[i];
        bool free;
        double b = place(v, t, i, scores[i], mu, held, offset, free);
        double move = free ? 0 : b - a;
        flags[i] = free;
        moves[i] = move;
        sum += a + move;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// What the moves are apart from `left` times those of the step before, whose product is known; `before` becomes the moves. Differences
// of the size of rounding are none.
extern "C" __global__ void primal_differences(u32 n, double left, double *moves, double *before, double *differences) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double move = moves[i], known = left * before[i], difference = move - known;
    if (fabs(difference) <= 1e-12 * (fabs(move) + fabs(known))) {
        difference = 0;
        moves[i] = move = known;
    }
    differences[i] = difference;
    before[i] = move;
}

// taken = what the sum of the moves of F has to make up for. One block.
extern "C" __global__ void primal_taken(const double *parts, u32 blocks, double total, double *taken) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *taken = sum - total;
}

// The variables of F; `change`: K times the moves of the others. `share`: the first x of each, of minus `taken`.
extern "C" __global__ void primal_gather(Variables v, const double *p, const u32 *order, const double *scores, const double *change, const u32 *list, u32 m, double width, double mu, u32 held, const double *taken, double share, Set f, u32 *rows) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = list[a];
    Term t = smoothed(v, p, i, width);
    double offset;
    bool free;
    place(v, t, i, scores[i], mu, held, offset, free);
    double x = -share * *taken;
    f.slope[a] = scores[i] + change[i] + t.p + offset + t.d * v.beta[i];
    f.low[a] = -INFINITE;
    f.high[a] = INFINITE;
    f.d[a] = t.d;
    f.x[a] = x;
    f.q[a] = (float)x;
    f.mask[a] = 1;
    rows[a] = order[i];
}

// The moves of F from solutions for its slopes and for ones, with the sum −taken if it is kept, and the new μ. One block.
extern "C" __global__ void primal_moves(u32 m, Set f, const double *solved, u32 size, const double *taken, u32 paired, double *mu) {
    double sum = 0, ones = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) {
        sum += solved[i];
        ones += solved[size + i];
    }
    sum = block_sum(sum);
    ones = block_sum(ones);
    double share = paired && ones > 0 ? (sum + *taken) / ones : 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) f.x[i] = solved[i] - share * solved[size + i];
    if (threadIdx.x == 0) *mu = -share;
}

// The new μ where K·x is known: the mean slope. One block.
extern "C" __global__ void primal_mean(u32 m, Set f, const double *product, u32 paired, double *mu) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x) sum += f.slope[i] + product[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *mu = paired ? sum / m : 0;
}

// The moves of F as columns of a product, and by variable.
extern "C" __global__ void primal_columns(u32 m, Set f, const u32 *list, const u32 *order, double *moves, u32 *variables, u32 *rows, double *values) {
    u32 a = blockIdx.x * blockDim.x + threadIdx.x;
    if (a >= m) return;
    u32 i = list[a];
    variables[a] = i;
    rows[a] = order[i];
    values[a] = f.x[a];
    moves[i] = f.x[a];
}

// to = share·from + product.
extern "C" __global__ void primal_change(u32 n, const double *product, double share, const double *from, double *to) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = fma(share, from[i], product[i]);
}

// Parts of the slopes of P along the moves, the k-th at from + k·by; and in the last row those of ½αᵀKα.
extern "C" __global__ void primal_search(Variables v, const double *p, const double *scores, const double *moves, const double *change, u32 n, double width, double mu, double mu_move, double from, double by, double *parts) {
    double at = from + blockIdx.y * by, sum = 0;
    bool energy = blockIdx.y + 1 == gridDim.y;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (energy) {
            sum += 0.5 * v.beta[i] * scores[i];
            continue;
        }
        Term t = smoothed(v, p, i, width);
        double move = mu_move - change[i], offset;
        bool free;
        double b = best(t, mu - scores[i] - t.p + at * move, offset, free);
        sum += (v.beta[i] + at * moves[i]) * change[i] + b * move;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// A block per sum.
extern "C" __global__ void primal_sums(const double *parts, u32 blocks, double *out) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < blocks; i += blockDim.x) sum += parts[blockIdx.x * blocks + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void primal_step(Variables v, u32 n, const double *moves, const double *change, double step, double *scores) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    v.beta[i] += step * moves[i];
    scores[i] += step * change[i];
}

// Puts α into the box; values within rounding of an end of it, or of a kink, are put on it. `before`: α as it was.
extern "C" __global__ void primal_clip(Variables v, u32 n, double *before) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double lo = v.lo[i], hi = v.hi[i], b = v.beta[i], near = 1e-9 * (isinf(lo) || isinf(hi) ? fabs(b) : hi - lo);
    before[i] = b;
    if (b - lo <= near) b = lo;
    else if (hi - b <= near) b = hi;
    else if (v.eps[i] > 0 && fabs(b) <= near) b = 0;
    v.beta[i] = b;
}
