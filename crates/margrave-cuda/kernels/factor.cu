// Cholesky factors in double precision of K over a set, for sets on which conjugate gradients make no progress.
//
// The matrix is row-major, its lower triangle is used, and its size is padded to a multiple of 64 by rows of the identity. Three
// launches per panel of 64: the factor of the diagonal block and its inverse, the panel below, the rest.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define PANEL 64
#define THREADS 256
// Numbers of a row of half a panel in shared memory: rows must start in different banks.
#define HALF (PANEL / 2 + 4)

// Tile (i, j), j ≤ i, of a lower triangle from its number.
__device__ __forceinline__ void tile_of(u32 number, u32 &i, u32 &j) {
    i = (u32)((sqrt(8.0 * number + 1) - 1) / 2);
    while ((i + 1) * (i + 2) / 2 <= number) i++;
    while (i * (i + 1) / 2 > number) i--;
    j = number - i * (i + 1) / 2;
}

// The lower tiles of the matrix of the n kept variables, k being that of all m, with the diagonal added; a block per tile.
extern "C" __global__ void __launch_bounds__(THREADS) factor_fill(const double *k, u32 m, const u32 *kept, u32 n, u32 size, const double *diagonal, double least, double *w) {
    u32 i, j;
    tile_of(blockIdx.x, i, j);
    for (u32 e = threadIdx.x; e < PANEL * PANEL; e += THREADS) {
        u32 row = i * PANEL + e / PANEL, column = j * PANEL + e % PANEL;
        double value = row == column ? 1 : 0;
        if (row < n && column < n) value = k[(u64)kept[row] * m + kept[column]] + (row == column ? fmax(diagonal[kept[row]], least) : 0);
        w[(u64)row * size + column] = value;
    }
}

// L and L⁻¹ of the diagonal block. A thread of 16 × 16 holds 4 × 4 numbers of each; a pivot's column and the row of the inverse pass
// through two buffers, so that one meeting of the threads per pivot suffices.
extern "C" __global__ void __launch_bounds__(THREADS) factor_block(double *w, u32 size, u32 panel, double *inverses, int *broken) {
    __shared__ double columns[2][PANEL], rows[2][PANEL];
    u32 t = threadIdx.x, i0 = t / 16 * 4, j0 = t % 16 * 4;
    double a[4][4], b[4][4];
    double *block = w + ((u64)panel * PANEL) * size + panel * PANEL;
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) {
            // Above the diagonal the block is not stored.
            u32 i = i0 + x, j = j0 + y;
            a[x][y] = block[(u64)max(i, j) * size + min(i, j)];
            b[x][y] = i == j ? 1 : 0;
        }
    #pragma unroll 1
    for (u32 group = 0; group < PANEL; group += 4) {
        #pragma unroll
        for (int own = 0; own < 4; own++) {
            u32 p = group + own, buffer = own % 2;
            if (j0 == group)
                #pragma unroll
                for (int x = 0; x < 4; x++) columns[buffer][i0 + x] = a[x][own];
            if (i0 == group)
                #pragma unroll
                for (int y = 0; y < 4; y++) rows[buffer][j0 + y] = b[own][y];
            __syncthreads();
            double pivot = columns[buffer][p];
            if (!(pivot > 0)) {
                if (t == 0) *broken = 1;
                pivot = 1;
            }
            double over = 1 / pivot, root = sqrt(over);
            #pragma unroll
            for (int x = 0; x < 4; x++) {
                u32 i = i0 + x;
                double value = columns[buffer][i], factor = value * over;
                #pragma unroll
                for (int y = 0; y < 4; y++) {
                    u32 j = j0 + y;
                    if (i > p && j > p) a[x][y] = fma(-factor, columns[buffer][j], a[x][y]);
                    if (i >= p && j == p) a[x][y] = i == p ? pivot * root : value * root;
                    if (i > p) b[x][y] = fma(-factor, rows[buffer][j], b[x][y]);
                    if (i == p) b[x][y] = rows[buffer][j] * root;
                }
            }
        }
    }
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 4; y++) {
            u32 i = i0 + x, j = j0 + y;
            if (i >= j) block[(u64)i * size + j] = a[x][y];
            inverses[(u64)panel * PANEL * PANEL + i * PANEL + j] = i >= j ? b[x][y] : 0;
        }
}

__device__ __forceinline__ void multiply(double (&c)[2], double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

// sums = one·twoᵀ for two tiles of 64 × 64 with rows `stride` numbers apart. A warp has 32 × 16 of the results: rows `down` + 8x,
// columns `across` + 8y + h.
__device__ __forceinline__ void products(const double *one, u64 stride_one, const double *two, u64 stride_two, double (&sums)[4][2][2]) {
    __shared__ double a[PANEL][HALF], b[PANEL][HALF];
    u32 t = threadIdx.x, lane = t % 32, w = t / 32, down = w / 4 * 32 + lane / 4, across = w % 4 * 16 + lane / 4;
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 2; y++) sums[x][y][0] = sums[x][y][1] = 0;
    for (u32 half = 0; half < PANEL; half += PANEL / 2) {
        __syncthreads();
        for (u32 e = t; e < PANEL * PANEL / 2; e += THREADS) {
            u32 i = e / (PANEL / 2), k = e % (PANEL / 2);
            a[i][k] = one[i * stride_one + half + k];
            b[i][k] = two[i * stride_two + half + k];
        }
        __syncthreads();
        #pragma unroll
        for (int p = 0; p < PANEL / 2; p += 4) {
            double left[4], right[2];
            #pragma unroll
            for (int x = 0; x < 4; x++) left[x] = a[down + x * 8][p + lane % 4];
            #pragma unroll
            for (int y = 0; y < 2; y++) right[y] = b[across + y * 8][p + lane % 4];
            #pragma unroll
            for (int x = 0; x < 4; x++)
                #pragma unroll
                for (int y = 0; y < 2; y++) multiply(sums[x][y], left[x], right[y]);
        }
    }
    __syncthreads();
}

// The panel below the diagonal block: A·L⁻ᵀ, in place.
extern "C" __global__ void __launch_bounds__(THREADS) factor_panel(double *w, u32 size, u32 panel, const double *inverses) {
    double sums[4][2][2];
    double *tile = w + (u64)(panel + 1 + blockIdx.x) * PANEL * size + panel * PANEL;
    products(tile, size, inverses + (u64)panel * PANEL * PANEL, PANEL, sums);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 2; y++)
            #pragma unroll
            for (int h = 0; h < 2; h++) tile[(u64)(warp / 4 * 32 + lane / 4 + x * 8) * size + warp % 4 * 16 + y * 8 + lane % 4 * 2 + h] = sums[x][y][h];
}

// The rest: A −= L·Lᵀ over the panel, lower tiles.
extern "C" __global__ void __launch_bounds__(THREADS) factor_rest(double *w, u32 size, u32 panel) {
    u32 i, j;
    tile_of(blockIdx.x, i, j);
    i += panel + 1;
    j += panel + 1;
    double sums[4][2][2];
    products(w + (u64)i * PANEL * size + panel * PANEL, size, w + (u64)j * PANEL * size + panel * PANEL, size, sums);
    double *tile = w + (u64)i * PANEL * size + j * PANEL;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int y = 0; y < 2; y++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 row = warp / 4 * 32 + lane / 4 + x * 8, column = warp % 4 * 16 + y * 8 + lane % 4 * 2 + h;
                tile[(u64)row * size + column] -= sums[x][y][h];
            }
}

// ---------------------------------------------------------------- two right-hand sides at a time: v[0..size), v[size..2·size)

// y of one panel of L·y = v, and v of the rows below without it. Block b has the b-th tile from the diagonal on.
extern "C" __global__ void __launch_bounds__(THREADS) solve_forward(const double *w, u32 size, u32 panel, const double *inverses, double *v, double *y) {
    __shared__ double own[2][PANEL];
    const double *inverse = inverses + (u64)panel * PANEL * PANEL;
    u32 t = threadIdx.x;
    if (t < 2 * PANEL) {
        u32 side = t / PANEL, row = t % PANEL;
        double sum = 0;
        for (u32 q = 0; q <= row; q++) sum = fma(inverse[row * PANEL + q], v[side * size + panel * PANEL + q], sum);
        own[side][row] = sum;
        if (blockIdx.x == 0) y[side * size + panel * PANEL + row] = sum;
    }
    __syncthreads();
    if (blockIdx.x == 0) return;
    u32 row = (panel + blockIdx.x) * PANEL + t / 4, part = t % 4 * (PANEL / 4);
    const double *line = w + (u64)row * size + panel * PANEL + part;
    double one = 0, two = 0;
    #pragma unroll
    for (int q = 0; q < PANEL / 4; q++) {
        one = fma(line[q], own[0][part + q], one);
        two = fma(line[q], own[1][part + q], two);
    }
    for (int o = 1; o < 4; o <<= 1) {
        one += __shfl_xor_sync(~0u, one, o);
        two += __shfl_xor_sync(~0u, two, o);
    }
    if (t % 4 == 0) {
        v[row] -= one;
        v[size + row] -= two;
    }
}

// x of one panel of Lᵀ·x = y, and y of the rows above without it. Block b has tile b; the last is the diagonal one.
extern "C" __global__ void __launch_bounds__(THREADS) solve_backward(const double *w, u32 size, u32 panel, const double *inverses, double *y, double *x) {
    __shared__ double own[2][PANEL], sums[2][4][PANEL];
    const double *inverse = inverses + (u64)panel * PANEL * PANEL;
    u32 t = threadIdx.x;
    if (t < 2 * PANEL) {
        u32 side = t / PANEL, row = t % PANEL;
        double sum = 0;
        for (u32 q = row; q < PANEL; q++) sum = fma(inverse[q * PANEL + row], y[side * size + panel * PANEL + q], sum);
        own[side][row] = sum;
        if (blockIdx.x == panel) x[side * size + panel * PANEL + row] = sum;
    }
    __syncthreads();
    if (blockIdx.x == panel) return;
    u32 column = t % PANEL, part = t / PANEL;
    const double *line = w + ((u64)panel * PANEL + part * (PANEL / 4)) * size + blockIdx.x * PANEL + column;
    double one = 0, two = 0;
    #pragma unroll
    for (int q = 0; q < PANEL / 4; q++) {
        double l = line[(u64)q * size];
        one = fma(l, own[0][part * (PANEL / 4) + q], one);
        two = fma(l, own[1][part * (PANEL / 4) + q], two);
    }
    sums[0][part][column] = one;
    sums[1][part][column] = two;
    __syncthreads();
    if (t < 2 * PANEL) {
        u32 side = t / PANEL, c = t % PANEL;
        y[side * size + blockIdx.x * PANEL + c] -= sums[side][0][c] + sums[side][1][c] + sums[side][2][c] + sums[side][3][c];
    }
}

// ---------------------------------------------------------------- the system of a pass

struct Set {
    double *slope, *low, *high, *d, *x;
    float *q;
    u8 *mask;
};

// out = k·x over the pinned variables, a warp per row.
extern "C" __global__ void __launch_bounds__(THREADS) pinned_product(const double *k, u32 m, Set f, double *out) {
    u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= m) return;
    double sum = 0;
    for (u32 j = lane; j < m; j += 32)
        if (!f.mask[j]) sum = fma(k[(u64)i * m + j], f.x[j], sum);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) out[i] = sum;
}

// Right-hand sides: what the slopes ask for, and ones.
extern "C" __global__ void factor_sides(Set f, const u32 *kept, u32 n, u32 size, const double *product, double *v) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    v[i] = i < n ? -(f.slope[kept[i]] + product[kept[i]]) : 0;
    v[size + i] = i < n ? 1 : 0;
}

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

// The moves of the kept variables, with sum zero if it is kept. One block.
extern "C" __global__ void factor_moves(u32 m, Set f, const u32 *kept, u32 n, u32 size, const double *x, const double *taken, u32 paired) {
    double pinned = 0, sum = 0, ones = 0;
    for (u32 i = threadIdx.x; i < m; i += blockDim.x)
        if (!f.mask[i]) pinned += f.x[i];
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        sum += x[i];
        ones += x[size + i];
    }
    pinned = block_sum(pinned) + *taken;
    sum = block_sum(sum);
    ones = block_sum(ones);
    double share = paired ? (sum + pinned) / ones : 0;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) f.x[kept[i]] = x[i] - share * x[size + i];
}
