// The Nyström preconditioner of conjugate gradients over the set F.
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
// A thread of the 16 × 16 of a block holds 4 × 4 numbers of the diagonal block; the row and the column of a pivot pass through
// two buffers, so that one meeting of the threads per pivot suffices.
extern "C" __global__ void __launch_bounds__(256) invert_block(double *g, u32 r, u32 k, double *inverse, int *broken) {
    __shared__ double rows[2][PANEL], columns[2][PANEL];
    u32 t = threadIdx.x, i0 = t / 16 * 4, j0 = t % 16 * 4;
    double a[4][4];
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) a[x][y] = g[(u64)(k * PANEL + i0 + x) * r + k * PANEL + j0 + y];
    #pragma unroll 1
    for (u32 group = 0; group < PANEL; group += 4) {
        #pragma unroll
        for (int own = 0; own < 4; own++) {
            u32 p = group + own, buffer = own % 2;
            if (i0 == group)
                #pragma unroll
                for (int y = 0; y < 4; y++) rows[buffer][j0 + y] = a[own][y];
            if (j0 == group)
                #pragma unroll
                for (int x = 0; x < 4; x++) columns[buffer][i0 + x] = a[x][own];
            __syncthreads();
            double pivot = rows[buffer][p];
            if (!(pivot > 0)) {
                if (t == 0) *broken = 1;
                pivot = 1;
            }
            double over = 1 / pivot;
            #pragma unroll
            for (int x = 0; x < 4; x++) {
                double factor = columns[buffer][i0 + x] * over;
                #pragma unroll
                for (int y = 0; y < 4; y++) {
                    double row = rows[buffer][j0 + y];
                    bool in_row = i0 + x == p, in_column = j0 + y == p;
                    if (in_row) a[x][y] = in_column ? over : row * over;
                    else a[x][y] = in_column ? -factor : fma(-factor, row, a[x][y]);
                }
            }
        }
    }
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) inverse[(i0 + x) * PANEL + j0 + y] = a[x][y];
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

// Numbers of a row of a half panel in shared memory, which must start in different banks.
#define HALF (PANEL / 2 + 4)

__device__ __forceinline__ void multiply_f64(double (&c)[2], double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

// g −= column·row off the panels; the panels themselves become row and −column·inverse, their crossing the inverse. A warp has 32 × 16
// numbers of the block's 64 × 64.
extern "C" __global__ void __launch_bounds__(256) invert_rest(double *g, u32 r, u32 k, const double *inverse, const double *row, const double *column) {
    __shared__ double a[PANEL][HALF], b[PANEL][HALF];
    u32 t = threadIdx.x, i0 = blockIdx.y, j0 = blockIdx.x;
    if (i0 == k) {
        for (u32 e = t; e < PANEL * PANEL; e += 256) {
            u32 i = e / PANEL, j = e % PANEL;
            g[(u64)(k * PANEL + i) * r + j0 * PANEL + j] = j0 == k ? inverse[e] : row[(u64)i * r + j0 * PANEL + j];
        }
        return;
    }
    u32 lane = t % 32, w = t / 32, down = w / 4 * 32 + lane / 4, across = w % 4 * 16 + lane / 4;
    double sums[4][2][2] = {};
    for (u32 half = 0; half < PANEL; half += PANEL / 2) {
        __syncthreads();
        for (u32 e = t; e < PANEL * PANEL / 2; e += 256) {
            a[e / (PANEL / 2)][e % (PANEL / 2)] = column[(u64)(i0 * PANEL + e / (PANEL / 2)) * PANEL + half + e % (PANEL / 2)];
            u32 i = e / PANEL, j = e % PANEL;
            b[j][i] = j0 == k ? inverse[(half + i) * PANEL + j] : row[(u64)(half + i) * r + j0 * PANEL + j];
        }
        __syncthreads();
        #pragma unroll
        for (int p = 0; p < PANEL / 2; p += 4) {
            double one[4], two[2];
            #pragma unroll
            for (int x = 0; x < 4; x++) one[x] = a[down + x * 8][p + lane % 4];
            #pragma unroll
            for (int y = 0; y < 2; y++) two[y] = b[across + y * 8][p + lane % 4];
            #pragma unroll
            for (int x = 0; x < 4; x++)
                #pragma unroll
                for (int y = 0; y < 2; y++) multiply_f64(sums[x][y], one[x], two[y]);
        }
    }
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 2; y++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                double *to = g + (u64)(i0 * PANEL + down + x * 8) * r + j0 * PANEL + w % 4 * 16 + y * 8 + lane % 4 * 2 + h;
                *to = j0 == k ? -sums[x][y][h] : *to - sums[x][y][h];
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
