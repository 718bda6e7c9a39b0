// Sums over rows: aᵀ [x u 1], where 1 is an input that is always one.
// Included once per ISA and dtype (native.cpp).
//
// Rows are taken in parts, each with sums of its own, and these are added in order: which thread
// does a part changes nothing. Where the sums outgrow the cache, the right-hand side is taken in
// groups of columns. A part is taken in blocks that stay in cache, while the rows of the next block
// are called for.
//
// Right-hand columns lie on the lanes, 2 L in a panel. Those that are left over, and would fill a
// small part of a vector, change sides: they are multiplied with vectors of a instead.

enum { BLOCK_ROWS = 64, OUTER_TILE = TILE_ROWS * 2 * L, OUTER_CACHE = 640 << 10, SHARES = 4 };

// Some columns of a block: where they begin, and how far it is from row to row.
struct Panel {
    const real* at;
    int64_t row;
};

// C (M, 2 L) += Aᵀ X for A (K, M) and X (K, V2 L).
template <int M, int V2>
static void outer_tile(int64_t K, Panel A, Panel X, real* C, bool fresh) {
    V c[M][V2];
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int v = 0; v < V2; v++)
            c[m][v] = fresh ? V{} : load(C + (2 * m + v) * L);
    for (int64_t k = 0; k < K; k++) {
        V x[V2];
        UNROLL for (int v = 0; v < V2; v++) x[v] = load(X.at + k * X.row + v * L);
        UNROLL for (int m = 0; m < M; m++) {
            const V a = fill(A.at[k * A.row + m]);
            UNROLL for (int v = 0; v < V2; v++) c[m][v] = fma(a, x[v], c[m][v]);
        }
    }
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int v = 0; v < V2; v++) store(C + (2 * m + v) * L, c[m][v]);
}

typedef void (*OuterTile)(int64_t, Panel, Panel, real*, bool);
static const OuterTile OUTER[2][TILE_ROWS] = {TILES(outer_tile, 1), TILES(outer_tile, 2)};

INLINE int64_t outer_columns(const Outer& p) { return p.M + p.I + (p.b ? 1 : 0); }
// The last columns that change sides, if that takes fewer products.
INLINE int64_t spare_columns(const Outer& p) {
    const int64_t n = outer_columns(p) % L;
    return n <= TILE_ROWS && n * ((p.N + L - 1) / L) < p.N ? n : 0;
}
INLINE int64_t right_vectors(const Outer& p) {
    return (outer_columns(p) - spare_columns(p) + L - 1) / L;
}
INLINE int64_t pairs(int64_t vectors) { return (vectors + 1) / 2; }
INLINE int64_t left_panels(const Outer& p) { return (p.N + TILE_ROWS - 1) / TILE_ROWS; }
INLINE int64_t right_panels(const Outer& p) { return pairs(right_vectors(p)); }
INLINE int64_t spare_panels(const Outer& p) {
    return spare_columns(p) ? pairs((p.N + L - 1) / L) : 0;
}
INLINE int64_t left_start(const Outer& p, int64_t i) { return p.N * i / left_panels(p); }
INLINE int64_t outer_sum_bytes(const Outer& p) {
    const int64_t tiles = left_panels(p) * right_panels(p) + spare_panels(p);
    return tiles * OUTER_TILE * int64_t(sizeof(real));
}
// Whether a few rows are so much work that threads share their columns.
INLINE bool columns_shared(const Outer& p) {
    return p.symmetric || (p.rows < 1024 && p.rows * p.N * outer_columns(p) > 1 << 22);
}
INLINE int64_t outer_groups(const Outer& p) {
    int64_t groups = (outer_sum_bytes(p) + OUTER_CACHE - 1) / OUTER_CACHE;
    if (columns_shared(p) && groups < SHARES) groups = SHARES;
    const int64_t most = right_panels(p) ? right_panels(p) : 1;
    return groups < 1 ? 1 : groups > most ? most : groups;
}

// Rows are read where they are, unless they are so far apart that those of a block have few places
// in L1 and push each other out: then they are copied, an odd number of cache lines apart.
INLINE bool in_place(int64_t row) { return row * int64_t(sizeof(real)) % 512 != 0; }
INLINE int64_t apart(int64_t n) {
    return ((n * int64_t(sizeof(real)) + 63) / 64 | 1) * 64 / int64_t(sizeof(real));
}

// Room for what has to be copied of a block.
struct Copies {
    real *left, *right, *spare, *last;
};
INLINE Copies copies_in(const Outer& p, char* work) {
    Copies c;
    c.left = (real*)work;
    c.right = c.left + BLOCK_ROWS * apart(p.N);
    c.last = c.right + BLOCK_ROWS * apart(right_panels(p) * 2 * L);
    c.spare = c.last + BLOCK_ROWS * 2 * L;
    return c;
}
static int64_t outer_work_bytes(const Outer& p) {
    const int64_t width = apart(p.N) + apart(right_panels(p) * 2 * L) + 2 * L + TILE_ROWS;
    return BLOCK_ROWS * width * int64_t(sizeof(real));
}

// Whether all of panel j of the right-hand columns lies beyond the diagonal from panel i of rows.
INLINE bool mirrored(const Outer& p, int64_t i, int64_t j) {
    return p.symmetric && j * 2 * L >= left_start(p, i + 1);
}

// The row of x that belongs to a row of a.
INLINE int64_t place(const Outer& p, int64_t row) { return p.places ? p.places[row] : row; }

INLINE int right_width(const Outer& p, int64_t j) {
    return right_vectors(p) - 2 * j < 2 ? 1 : 2;
}
// Columns from … from + n − 1 of rows of [x u 1]; 0 beyond.
static void copy_columns(const Outer& p, int64_t row, int64_t rows, int64_t from, int64_t n,
                         real* to, int64_t to_row) {
    const real *x = (const real*)p.x, *u = (const real*)p.u + row * p.u_row;
    const int64_t of_x = p.M - from < 0 ? 0 : (p.M - from < n ? p.M - from : n);
    for (int64_t k = 0; k < rows; k++, to += to_row) {
        if (of_x) memcpy(to, x + place(p, row + k) * p.x_row + from, of_x * sizeof(real));
        for (int64_t j = of_x; j < n; j++) {
            const int64_t i = from + j - p.M;
            to[j] = i < p.I ? u[k * p.u_row + i] : real(i == p.I && p.b);
        }
    }
}

// A block of rows of a, and of panels low … high − 1 of [x u 1].
struct Block {
    int64_t row, rows, low, high;
    bool fresh;
};

static Panel left_rows(const Outer& p, const Block& b, real* copy) {
    const real* a = (const real*)p.a + b.row * p.a_row;
    if (in_place(p.a_row)) return {a, p.a_row};
    for (int64_t k = 0; k < b.rows; k++)
        memcpy(copy + k * apart(p.N), a + k * p.a_row, p.N * sizeof(real));
    return {copy, apart(p.N)};
}

static void add_panels(const Outer& p, const Block& b, Panel a, Copies c, real* sums,
                       Ahead* ahead) {
    const real* x = (const real*)p.x + b.row * p.x_row;
    const int64_t lefts = left_panels(p), first = b.low * 2 * L;
    const int64_t columns = right_vectors(p) * L, end = b.high * 2 * L;
    const int64_t n = (end < columns ? end : columns) - first, row = apart(n);
    const bool copied = p.places || !in_place(p.x_row);
    if (copied) copy_columns(p, b.row, b.rows, first, n, c.right, row);
    for (int64_t j = b.low; j < b.high; j++) {
        const int width = right_width(p, j);
        Panel right = {x + j * 2 * L, p.x_row};
        if (copied) {
            right = {c.right + j * 2 * L - first, row};
        } else if ((2 * j + width) * L > p.M) {
            right = {c.last, 2 * L};
            copy_columns(p, b.row, b.rows, j * 2 * L, width * L, c.last, 2 * L);
        }
        for (int64_t i = 0; i < lefts; i++) {
            const int64_t m = left_start(p, i), rows = left_start(p, i + 1) - m;
            if (!mirrored(p, i, j))
                OUTER[width - 1][rows - 1](b.rows, {a.at + m, a.row}, right,
                                           sums + (j * lefts + i) * OUTER_TILE, b.fresh);
            call_share(ahead[0]);
            call_share(ahead[1]);
        }
    }
}

// The columns that change sides.
static void add_spare(const Outer& p, const Block& b, Panel a, Copies c, real* sums) {
    const int64_t n = spare_columns(p), vectors = (p.N + L - 1) / L;
    if (!n) return;
    copy_columns(p, b.row, b.rows, outer_columns(p) - n, n, c.spare, n);
    for (int64_t j = 0; j < spare_panels(p); j++) {
        const int64_t first = j * 2 * L, width = vectors - 2 * j < 2 ? 1 : 2;
        Panel right = {a.at + first, a.row};
        if (first + width * L > p.N) {
            right = {c.last, 2 * L};
            memset(c.last, 0, size_t(b.rows * 2 * L) * sizeof(real));
            for (int64_t k = 0; k < b.rows; k++)
                memcpy(c.last + k * 2 * L, a.at + k * a.row + first,
                       (p.N - first) * sizeof(real));
        }
        OUTER[width - 1][n - 1](b.rows, {c.spare, n}, right, sums + j * OUTER_TILE, b.fresh);
    }
}

// The sums of rows from … to − 1, for one group of columns.
static void sum_rows(const Outer& p, int64_t group, int64_t from, int64_t to, void* found,
                     char* work) {
    real* sums = (real*)found;
    const int64_t rights = right_panels(p), groups = outer_groups(p);
    const int64_t low = rights * group / groups, high = rights * (group + 1) / groups;
    const int64_t tiles = (high - low) * left_panels(p), first = low * 2 * L;
    const int64_t columns = (high * 2 * L < p.M ? high * 2 * L : p.M) - first;
    const Copies copies = copies_in(p, work);
    for (int64_t row = from; row < to || row == from;) {
        const int64_t n = to - row < BLOCK_ROWS ? to - row : int64_t(BLOCK_ROWS);
        const int64_t then = row + n, next = to - then < BLOCK_ROWS ? to - then : int64_t(BLOCK_ROWS);
        Ahead ahead[2] = {
            ahead_of((const real*)p.a + then * p.a_row, p.N, p.a_row, next, tiles, false),
            ahead_of((const real*)p.x + then * p.x_row + first, columns, p.x_row, p.places ? 0 : next,
                     tiles, false)};
        const Block block = {row, n, low, high, row == from};
        const Panel a = left_rows(p, block, copies.left);
        add_panels(p, block, a, copies, sums, ahead);
        if (group == groups - 1)
            add_spare(p, block, a, copies, sums + rights * left_panels(p) * OUTER_TILE);
        if (!n) break;
        row = then;
    }
}

// Some sums in a row, column `from` being the first, to where they belong.
INLINE void add_sums(const Outer& p, int64_t i, int64_t from, int64_t n, const real* found) {
    real *W = (real*)p.W + i * p.M, *W_i = (real*)p.W_i + i * p.I - p.M, *b = (real*)p.b;
    const int64_t end = from + n;
    int64_t j = from;
    for (; j + L <= end && j + L <= p.M; j += L)
        store(W + j, load(W + j) + load(found + j - from));
    for (; j < end && j < p.M; j++) W[j] += found[j - from];
    for (; j < end && j < p.M + p.I; j++) W_i[j] += found[j - from];
    if (j < end && j == p.M + p.I && b) b[i] += found[j - from];
}

// The side of W that was not computed, from the other one; in squares, which stay in cache.
static void mirror(const Outer& p) {
    real* W = (real*)p.W;
    for (int64_t top = 0; top < p.N; top += 2 * L)
        for (int64_t left = top; left < p.N; left += 2 * L)
            for (int64_t i = top; i < p.N && i < top + 2 * L; i++)
                for (int64_t j = left > i ? left : i + 1; j < p.N && j < left + 2 * L; j++)
                    W[i * p.M + j] = W[j * p.M + i];
}

// What a part has found, to where it belongs.
static void add_part(const Outer& p, const void* part) {
    const real* sums = (const real*)part;
    const int64_t lefts = left_panels(p), spare = spare_columns(p), all = outer_columns(p);
    for (int64_t panel = 0; panel < right_panels(p); panel++)
        for (int64_t k = 0; k < lefts; k++, sums += OUTER_TILE)
            for (int64_t i = left_start(p, k);
                 i < left_start(p, k + 1) && !mirrored(p, k, panel); i++)
                add_sums(p, i, panel * 2 * L, right_width(p, panel) * L,
                         sums + (i - left_start(p, k)) * 2 * L);
    for (int64_t i = 0; i < p.N && spare; i++) {
        const real* found = sums + i / (2 * L) * OUTER_TILE + i % (2 * L);
        for (int64_t k = 0; k < spare; k++) add_sums(p, i, all - spare + k, 1, found + k * 2 * L);
    }
    if (p.symmetric) mirror(p);
}
