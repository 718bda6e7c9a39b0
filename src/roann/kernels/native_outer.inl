// Sums over rows: aᵀ [x u 1], where 1 is an input that is always one.
// Included once per ISA and dtype (native.cpp).
//
// Rows are taken in parts, each with sums of its own, and these are added in order: which thread
// does a part changes nothing. A part is taken in blocks that stay in cache, while the rows of the
// next block are called for.

enum { BLOCK_ROWS = 64, OUTER_TILE = TILE_ROWS * 2 * L };

// Some columns of a block: where they begin, and how far it is from row to row.
struct Panel {
    const real* at;
    int64_t row;
};

// C (TILE_ROWS, 2 L) += Aᵀ X for A (K, TILE_ROWS) and X (K, 2 L).
static void outer_tile(int64_t K, Panel A, Panel X, real* C) {
    V c[TILE_ROWS][2];
    UNROLL for (int m = 0; m < TILE_ROWS; m++)
        UNROLL for (int v = 0; v < 2; v++) c[m][v] = load(C + (2 * m + v) * L);
    for (int64_t k = 0; k < K; k++) {
        const V low = load(X.at + k * X.row), high = load(X.at + k * X.row + L);
        UNROLL for (int m = 0; m < TILE_ROWS; m++) {
            const V a = fill(A.at[k * A.row + m]);
            c[m][0] = fma(a, low, c[m][0]);
            c[m][1] = fma(a, high, c[m][1]);
        }
    }
    UNROLL for (int m = 0; m < TILE_ROWS; m++)
        UNROLL for (int v = 0; v < 2; v++) store(C + (2 * m + v) * L, c[m][v]);
}

INLINE int64_t outer_columns(const Outer& p) { return p.M + p.I + (p.b ? 1 : 0); }
INLINE int64_t left_panels(const Outer& p) { return (p.N + TILE_ROWS - 1) / TILE_ROWS; }
INLINE int64_t right_panels(const Outer& p) { return (outer_columns(p) + 2 * L - 1) / (2 * L); }
INLINE int64_t outer_sum_bytes(const Outer& p) {
    return left_panels(p) * right_panels(p) * OUTER_TILE * int64_t(sizeof(real));
}

// Full panels are read where they are, unless rows are so far apart that those of a block have
// few places in L1 and push each other out.
INLINE bool in_place(int64_t row) { return row * int64_t(sizeof(real)) % 512 != 0; }

// Panel i, WIDTH columns of S (rows, N); `copied` is where it was packed, if it had to be.
template <int WIDTH>
INLINE Panel panel_of(const real* S, int64_t row, int64_t rows, int64_t N, int64_t i,
                      const real* copied) {
    if (in_place(row) && (i + 1) * WIDTH <= N) return {S + i * WIDTH, row};
    return {copied + i * rows * WIDTH, WIDTH};
}

// Columns of S (rows, N), WIDTH at a time, behind each other: panel i is (rows, WIDTH).
template <int WIDTH>
INLINE void pack_full(const real* S, int64_t row, int64_t rows, int64_t N, real* to) {
    if (in_place(row)) return;
    for (int64_t k = 0; k < rows; k++)
        for (int64_t i = 0; i < N / WIDTH; i++)
            memcpy(to + (i * rows + k) * WIDTH, S + k * row + i * WIDTH, WIDTH * sizeof(real));
}

static void pack_left(const Outer& p, int64_t from, int64_t rows, real* to) {
    const real* a = (const real*)p.a + from * p.a_row;
    pack_full<TILE_ROWS>(a, p.a_row, rows, p.N, to);
    const int64_t done = p.N / TILE_ROWS * TILE_ROWS, n = p.N - done;
    if (!n) return;
    to += done * rows;
    memset(to, 0, size_t(rows * TILE_ROWS) * sizeof(real));
    for (int64_t k = 0; k < rows; k++)
        for (int64_t i = 0; i < n; i++) to[k * TILE_ROWS + i] = a[k * p.a_row + done + i];
}

static void pack_right(const Outer& p, int64_t from, int64_t rows, real* to) {
    const real *x = (const real*)p.x + from * p.x_row, *u = (const real*)p.u + from * p.u_row;
    pack_full<2 * L>(x, p.x_row, rows, p.M, to);
    const int64_t done = p.M / (2 * L), n = p.M - done * 2 * L;
    to += done * rows * 2 * L;
    memset(to, 0, size_t((right_panels(p) - done) * rows * 2 * L) * sizeof(real));
    const auto place = [&](int64_t k, int64_t j) -> real& {
        return to[(j / (2 * L) * rows + k) * 2 * L + j % (2 * L)];
    };
    for (int64_t k = 0; k < rows; k++) {
        for (int64_t j = 0; j < n; j++) place(k, j) = x[k * p.x_row + done * 2 * L + j];
        for (int64_t j = 0; j < p.I; j++) place(k, n + j) = u[k * p.u_row + j];
        if (p.b) place(k, n + p.I) = 1;
    }
}

static int64_t outer_work_bytes(const Outer& p) {
    const int64_t width = left_panels(p) * TILE_ROWS + right_panels(p) * 2 * L;
    return BLOCK_ROWS * width * int64_t(sizeof(real));
}

// Rows that the next block will read, being called for a few lines at a time.
struct Coming {
    const char *at, *end;
    int64_t share;
};
INLINE Coming coming(const void* array, int64_t row, int64_t from, int64_t rows, int64_t shares) {
    const int64_t size = sizeof(real);
    const char* at = (const char*)array + from * row * size;
    return {at, at + rows * row * size, rows * row * size / 64 / shares + 1};
}
INLINE void call_share(Coming& c) {
    for (int64_t i = 0; i < c.share && c.at < c.end; i++, c.at += 64)
        __builtin_prefetch(c.at, 0, 2);
}

// The sums of rows from … to − 1.
static void sum_rows(const Outer& p, int64_t from, int64_t to, void* found, char* work) {
    real* sums = (real*)found;
    const int64_t rights = right_panels(p), lefts = left_panels(p), tiles = lefts * rights;
    memset(sums, 0, size_t(outer_sum_bytes(p)));
    real *A = (real*)work, *X = A + BLOCK_ROWS * lefts * TILE_ROWS;
    for (int64_t row = from; row < to;) {
        const int64_t n = to - row < BLOCK_ROWS ? to - row : int64_t(BLOCK_ROWS);
        const real* a_rows = (const real*)p.a + row * p.a_row;
        const real* x_rows = (const real*)p.x + row * p.x_row;
        pack_left(p, row, n, A);
        pack_right(p, row, n, X);
        row += n;
        const int64_t next = to - row < BLOCK_ROWS ? to - row : int64_t(BLOCK_ROWS);
        Coming a = coming(p.a, p.a_row, row, next, tiles);
        Coming x = coming(p.x, p.x_row, row, p.M ? next : 0, tiles);
        for (int64_t j = 0; j < rights; j++) {
            const Panel right = panel_of<2 * L>(x_rows, p.x_row, n, p.M, j, X);
            for (int64_t i = 0; i < lefts; i++) {
                const Panel left = panel_of<TILE_ROWS>(a_rows, p.a_row, n, p.N, i, A);
                outer_tile(n, left, right, sums + (j * lefts + i) * OUTER_TILE);
                call_share(a);
                call_share(x);
            }
        }
    }
}

// What a part has found, to where it belongs.
static void add_part(const Outer& p, const void* part) {
    const real* sums = (const real*)part;
    real *W = (real*)p.W, *W_i = (real*)p.W_i, *b = (real*)p.b;
    const int64_t lefts = left_panels(p), M = p.M;
    for (int64_t panel = 0; panel < right_panels(p); panel++)
        for (int64_t i = 0; i < p.N; i++) {
            const int64_t tile = panel * lefts + i / TILE_ROWS, first = panel * 2 * L;
            const real* found = sums + tile * OUTER_TILE + i % TILE_ROWS * 2 * L - first;
            const int64_t end = first + 2 * L, last = end < M ? end : M;
            int64_t j = first;
            for (; j < last; j++) W[i * M + j] += found[j];
            for (; j < end && j < M + p.I; j++) W_i[i * p.I + j - M] += found[j];
            if (j < end && j == M + p.I && b) b[i] += found[j];
        }
}
