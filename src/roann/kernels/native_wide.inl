// Layout WIDE: lanes over outputs; weights packed into panels that stay in cache for all steps.
// Included once per ISA and dtype (native.cpp).
//
// A panel holds, for each k, the weights from unit k to 2 L outputs. Forwards with a dense filter
// these are L rows of W beside the same L rows of O, so that y and O x of one unit meet in
// registers; otherwise they are 2 L outputs of one matrix, or L in the last panel. Where W and O are
// not used side by side, the panel of O lies behind that of W. The last few outputs, which would
// leave most of a vector empty, have a panel of rows, with lanes over the units they are summed over.

// C (M, 2 L) += A (M, K) · panel (K, V2 · L). Every entry of C is one chain of fused multiply-adds
// in the order of k, whatever M: how rows are grouped into tiles cannot change a result.
template <int M, int V2>
static void tile(int64_t K, const real* A, int64_t lda, const real* panel, real* C, bool fresh) {
    V c[M][V2];
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int v = 0; v < V2; v++)
            c[m][v] = fresh ? V{} : load(C + m * 2 * L + v * L);
    for (int64_t k = 0; k < K; k++) {
        V w[V2];
        UNROLL for (int v = 0; v < V2; v++) w[v] = load(panel + k * V2 * L + v * L);
        UNROLL for (int m = 0; m < M; m++) {
            const V x = fill(A[m * lda + k]);
            UNROLL for (int v = 0; v < V2; v++) c[m][v] = fma(x, w[v], c[m][v]);
        }
    }
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int v = 0; v < V2; v++) store(C + m * 2 * L + v * L, c[m][v]);
}

typedef void (*Tile)(int64_t, const real*, int64_t, const real*, real*, bool);
static const Tile TILE[2][TILE_ROWS] = {TILES(tile, 1), TILES(tile, 2)};

INLINE int64_t tiles(int64_t rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }
INLINE int64_t blocks(int64_t K) {
    const int64_t block = 36864 / (2 * VECTOR_BYTES);
    return (K + block - 1) / block;
}

INLINE bool paired(const Args& p) { return p.op == FORWARD && p.filter == DENSE; }

// The last outputs, where they are few; the vectors of all others, and how they lie in panels.
INLINE int64_t few_outputs(const Args& p) {
    const int64_t n = p.N % L;
    return p.N >= 4 * L && n <= L / 4 ? n : 0;
}
INLINE int64_t whole_vectors(const Args& p) {
    return few_outputs(p) ? p.N / L : (p.N + L - 1) / L;
}
INLINE int64_t vectors_per_panel(const Args& p) { return paired(p) ? 1 : 2; }
INLINE int64_t whole_panels(const Args& p) {
    return (whole_vectors(p) + vectors_per_panel(p) - 1) / vectors_per_panel(p);
}
INLINE int64_t panels(const Args& p) { return whole_panels(p) + (few_outputs(p) ? 1 : 0); }
INLINE bool of_rows(const Args& p, int64_t i) { return i == whole_panels(p); }
// The outputs of panel i: its first vector, and how many.
INLINE int64_t first_vector(const Args& p, int64_t i) {
    return of_rows(p, i) ? p.N / L : i * vectors_per_panel(p);
}
INLINE int vectors_of(const Args& p, int64_t i) {
    if (of_rows(p, i)) return 1;
    const int64_t left = whole_vectors(p) - first_vector(p, i), most = vectors_per_panel(p);
    return int(left < most ? left : most);
}

// A short input is appended to the state; a long one has panels of its own, without O beside them.
INLINE int64_t appended(const Args& p) { return p.op != BACKWARD && p.I <= L ? p.I : 0; }
INLINE int64_t separate(const Args& p) { return p.op != BACKWARD && p.I > L ? p.I : 0; }

INLINE int64_t panel_size(const Args& p) {
    const int64_t turning = p.op != FORWARD && p.filter == DENSE ? p.N : 0;
    return (p.N + appended(p) + turning) * 2 * L;
}
INLINE int64_t input_panel_size(const Args& p) { return separate(p) * vectors_per_panel(p) * L; }

// Column l of the panel from row l of S (outputs, K); zero beyond the last output.
static void pack_rows(real* panel, int width, int at, const real* S, int64_t outputs, int64_t K) {
    for (int l = 0; l < L; l++) {
        real* to = panel + at * L + l;
        for (int64_t k = 0; k < K; k++) to[k * width * L] = l < outputs ? S[l * K + k] : real(0);
    }
}

// Rows of the panel from columns j … of S (K, N).
static void pack_columns(real* panel, int width, const real* S, int64_t j, int64_t K, int64_t N) {
    const int64_t all = width * L, n = N - j < all ? N - j : all;
    for (int64_t k = 0; k < K; k++) {
        memcpy(panel + k * all, S + k * N + j, n * sizeof(real));
        memset(panel + k * all + n, 0, (all - n) * sizeof(real));
    }
}

// Panels of rows: n rows of S, with what is appended, and n columns of S from column j on.
static void copy_rows(real* to, const real* S, const real* more, int64_t n, int64_t N, int64_t I) {
    for (int64_t r = 0; r < n; r++, to += N + I) {
        memcpy(to, S + r * N, N * sizeof(real));
        if (I) memcpy(to + N, more + r * I, I * sizeof(real));
    }
}
static void turn_columns(real* to, const real* S, int64_t n, int64_t j, int64_t N) {
    for (int64_t r = 0; r < n; r++, to += N)
        for (int64_t k = 0; k < N; k++) to[k] = S[k * N + j + r];
}

// Weights of step t, as pointers to what all panels are made of.
struct Weights {
    const real *W, *W_i, *O;
};
static void pack_few(const Args& p, const Weights& w, real* to) {
    const int64_t n = few_outputs(p), j = p.N - n, N = p.N, K = N + appended(p);
    if (p.op == BACKWARD)
        turn_columns(to, w.W, n, j, N);
    else
        copy_rows(to, w.W + j * N, w.W_i + j * p.I, n, N, appended(p));
    if (paired(p))
        copy_rows(to + n * K, w.O + j * N, nullptr, n, N, 0);
    else if (w.O)
        turn_columns(to + K * 2 * L, w.O, n, j, N);
}

static void pack(const Args& p, int64_t t, real* to) {
    const int64_t N = p.N, few = appended(p);
    const Weights w = {(const real*)p.W + t * p.W_step, (const real*)p.W_i,
                       p.filter == DENSE ? (const real*)p.O0 + t * p.O_step : nullptr};
    for (int64_t i = 0; i < whole_panels(p); i++, to += panel_size(p)) {
        const int64_t j = first_vector(p, i) * L, j1 = paired(p) ? j : j + L;
        const int width = paired(p) ? 2 : vectors_of(p, i);
        real *inputs = to + N * width * L, *behind = to + (N + few) * 2 * L;
        if (p.op == BACKWARD) {
            pack_columns(to, width, w.W, j, N, N);
        } else {
            pack_rows(to, width, 0, w.W + j * N, N - j, N);
            pack_rows(inputs, width, 0, w.W_i + j * p.I, N - j, few);
            if (width == 2) {
                pack_rows(to, 2, 1, (paired(p) ? w.O : w.W) + j1 * N, N - j1, N);
                pack_rows(inputs, 2, 1, w.W_i + j1 * p.I, paired(p) ? 0 : N - j1, few);
            }
        }
        if (w.O && !paired(p)) pack_columns(behind, width, w.O, j, N, N);
    }
    if (few_outputs(p)) pack_few(p, w, to);
}

static void pack_input(const Args& p, real* to) {
    const real* W_i = (const real*)p.W_i;
    for (int64_t i = 0; i < panels(p); i++, to += input_panel_size(p)) {
        const int64_t j = first_vector(p, i) * L;
        const int width = vectors_of(p, i);
        if (of_rows(p, i))
            memcpy(to, W_i + j * p.I, size_t((p.N - j) * p.I) * sizeof(real));
        else
            for (int v = 0; v < width; v++)
                pack_rows(to, width, v, W_i + (j + v * L) * p.I, p.N - j - v * L, p.I);
    }
}

// C (M, 2 L) += A (M, K) · Sᵀ for rows S (R, K), in lanes 0 … R − 1. Every entry is summed in the
// same order, whatever M.
template <int M, int R>
static void dot_tile(int64_t K, const real* A, int64_t lda, const real* S, real* C, bool fresh) {
    const int64_t whole = K / L * L;
    const int rest = int(K - whole);
    V c[M][R] = {};
    for (int64_t k = 0; k < whole; k += L)
        UNROLL for (int m = 0; m < M; m++)
            UNROLL for (int r = 0; r < R; r++)
                c[m][r] = fma(load(A + m * lda + k), load(S + r * K + k), c[m][r]);
    UNROLL for (int m = 0; m < M; m++) {
        V out = fresh ? V{} : load(C + m * 2 * L);
        UNROLL for (int r = 0; r < R; r++) {
            if (rest)
                c[m][r] = fma(load_part(A + m * lda + whole, rest),
                              load_part(S + r * K + whole, rest), c[m][r]);
            out[r] += sum(c[m][r]);
        }
        store(C + m * 2 * L, out);
    }
}
template <int R>
static void dot_panel(int64_t rows, int64_t K, const real* A, int64_t lda, const real* S, real* C,
                      bool fresh) {
    int64_t l = 0;
    for (; l + 4 <= rows; l += 4)
        dot_tile<4, R>(K, A + l * lda, lda, S, C + l * 2 * L, fresh);
    for (; l < rows; l++) dot_tile<1, R>(K, A + l * lda, lda, S, C + l * 2 * L, fresh);
}
typedef void (*DotPanel)(int64_t, int64_t, const real*, int64_t, const real*, real*, bool);
static const DotPanel DOTS[4] = {dot_panel<1>, dot_panel<(L < 8 ? 1 : 2)>,
                                 dot_panel<(L < 16 ? 1 : 3)>, dot_panel<(L < 16 ? 1 : 4)>};

// C (rows, 2 L) += A (rows, K) · a part of panel i with `width` vectors, in blocks of K whose part of
// the panel stays in L1.
static void multiply(Sweep& s, int64_t i, int64_t rows, int64_t K, const real* A, int64_t lda,
                     const real* panel, int width, real* C, bool fresh) {
    if (of_rows(*s.p, i)) return DOTS[few_outputs(*s.p) - 1](rows, K, A, lda, panel, C, fresh);
    const int64_t n = blocks(K), count = tiles(rows);
    for (int64_t block = 0; block < n; block++) {
        const int64_t k0 = K * block / n, k1 = K * (block + 1) / n;
        for (int64_t j = 0; j < count; j++) {
            const int64_t r0 = rows * j / count, r1 = rows * (j + 1) / count;
            TILE[width - 1][r1 - r0 - 1](k1 - k0, A + r0 * lda + k0, lda, panel + k0 * width * L,
                                         C + r0 * 2 * L, fresh && block == 0);
            call_share(s);
        }
    }
}

// In how many groups a panel takes its rows through product and elementwise part: tile by tile, so
// that a row is still in L1 for its filter, if the panel stays there too.
INLINE int64_t groups_of(int64_t rows, int64_t K) { return blocks(K) == 1 ? tiles(rows) : 1; }

// Whether all of these are numbers: 0 · x is 0 for those alone.
INLINE bool finite(const real* u, int64_t n) {
    real sum = 0;
    for (int64_t i = 0; i < n; i++) sum += 0 * u[i];
    return sum == 0;
}

// O x anew for rows whose appended input is not finite: its zeros beside O made it NaN.
static void turn_again(Sweep& s, int64_t rows, const real* now, const real* panel, real* C) {
    for (int64_t l = 0; l < rows; l++) {
        const real* x = now + l * s.ld;
        if (finite(x + s.p->N, s.p->I)) continue;
        V c = V{};
        for (int64_t k = 0; k < s.p->N; k++) c = fma(fill(x[k]), load(panel + (2 * k + 1) * L), c);
        store(C + (2 * l + 1) * L, c);
    }
}

static void forward_wide(Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    const int64_t shares = whole_panels(p) * tiles(m) * blocks(s.K);
    if (m && t + 1 < p.T) {
        const int64_t at = offset(s, t + 1, 0), next = moving(s, t + 1);
        call_ahead(s, 0, (const real*)p.states + at, p.N, next, shares, true);
        if (p.slopes == REAL_SLOPES)
            call_ahead(s, 1, (const real*)p.slope + at, p.N, next, shares, true);
    }
    const real* u = input_at(p, t) + s.row0 * p.u_row;
    bool odd = false;  // an input that is not finite meets the zeros beside O
    if (appended(p))
        for (int64_t l = 0; l < m; l++) {
            real* behind = s.now + l * s.ld + p.N;
            for (int64_t i = 0; i < p.I; i++) behind[i] = u[l * p.u_row + i];
            odd = odd || (paired(p) && !finite(behind, p.I));
        }
    for (int64_t i = 0; i < panels(p); i++) {
        const real* panel = s.panels + i * panel_size(p);
        const int each = vectors_of(p, i);
        const int64_t groups = of_rows(p, i) ? 1 : groups_of(m, s.K);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t from = m * g / groups, rows = m * (g + 1) / groups - from;
            real *C = s.C + from * 2 * L, *now = s.now + from * s.ld;
            multiply(s, i, rows, s.K, now, s.ld, panel, paired(p) ? 2 : each, C, true);
            if (paired(p) && of_rows(p, i))
                multiply(s, i, rows, p.N, now, s.ld, panel + few_outputs(p) * s.K, 1, C + L, true);
            else if (odd)
                turn_again(s, rows, now, panel, C);
            if (separate(p))
                multiply(s, i, rows, p.I, u + from * p.u_row, p.u_row,
                         s.input_panels + i * input_panel_size(p), each, C, false);
            for (int v = 0; v < each; v++)
                update(s, t, first_vector(p, i) + v, from, rows, C + v * L);
        }
    }
}

static void backward_wide(Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    const bool dense = p.filter == DENSE;
    const int64_t shares = (dense ? 2 : 1) * whole_panels(p) * tiles(m) * blocks(p.N);
    if (m && t >= 2) {
        const int64_t at = offset(s, t - 2, 0), next = moving(s, t - 2);
        call_ahead(s, 0, (const real*)p.a + at, p.N, next, shares, true);
        const void* read = p.slopes == PARTS ? p.after : p.slope;
        if (p.slopes >= REAL_SLOPES && read != p.a)
            call_ahead(s, 1, (const real*)read + at, p.N, next, shares, false);
        if (p.g_states)
            call_ahead(s, 2, gradient_at(p, t - 2) + s.row0 * p.g_row, p.g_row, next, shares,
                       false);
    }
    for (int64_t i = 0; i < panels(p); i++) {
        const real* panel = s.panels + i * panel_size(p);
        const int each = vectors_of(p, i);
        multiply(s, i, m, p.N, s.now, 2 * s.ld, panel, each, s.C, true);
        if (dense)
            multiply(s, i, m, p.N, s.now + s.ld, 2 * s.ld, panel + p.N * 2 * L, each, s.C, false);
        for (int v = 0; v < each; v++) flow(s, t, first_vector(p, i) + v, 0, m, s.C + v * L);
    }
}
