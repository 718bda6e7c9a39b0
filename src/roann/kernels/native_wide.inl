// Layout WIDE: lanes over outputs; weights packed into panels that stay in cache for all steps.
// Included once per ISA and dtype (native.cpp).
//
// A panel holds, for each k, the weights from unit k to 2 L outputs. Forwards with a dense filter
// these are L rows of W beside the same L rows of O, so that y and O x of one unit meet in
// registers; otherwise they are 2 L outputs of one matrix. Where W and O are not used side by side,
// the panel of O lies behind that of W.

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

// C (rows, 2 L) += A (rows, K) · panel, in blocks of K whose part of the panel stays in L1.
static void multiply(Sweep& s, int64_t rows, int64_t K, const real* A, int64_t lda,
                     const real* panel, int width, real* C, bool fresh) {
    const int64_t n = blocks(K), count = tiles(rows);
    for (int64_t i = 0; i < n; i++) {
        const int64_t k0 = K * i / n, k1 = K * (i + 1) / n;
        for (int64_t j = 0; j < count; j++) {
            const int64_t r0 = rows * j / count, r1 = rows * (j + 1) / count;
            TILE[width - 1][r1 - r0 - 1](k1 - k0, A + r0 * lda + k0, lda, panel + k0 * width * L,
                                         C + r0 * 2 * L, fresh && i == 0);
            call_share(s);
        }
    }
}

// In how many groups a panel takes its rows through product and elementwise part: tile by tile, so
// that a row is still in L1 for its filter, if the panel stays there too.
INLINE int64_t groups_of(int64_t rows, int64_t K) { return blocks(K) == 1 ? tiles(rows) : 1; }

// Column l of the panel from row l of S (outputs, K); zero beyond the last output.
static void pack_rows(real* panel, int width, int at, const real* S, int64_t outputs, int64_t K) {
    for (int l = 0; l < L; l++) {
        real* to = panel + at * L + l;
        for (int64_t k = 0; k < K; k++) to[k * width * L] = l < outputs ? S[l * K + k] : real(0);
    }
}

// Rows of the panel from columns j … of S (K, N).
static void pack_columns(real* panel, const real* S, int64_t j, int64_t K, int64_t N) {
    const int64_t n = N - j < 2 * L ? N - j : 2 * L;
    for (int64_t k = 0; k < K; k++) {
        memcpy(panel + k * 2 * L, S + k * N + j, n * sizeof(real));
        memset(panel + k * 2 * L + n, 0, (2 * L - n) * sizeof(real));
    }
}

INLINE bool paired(const Args& p) { return p.op == FORWARD && p.filter == DENSE; }
INLINE int64_t outputs_per_panel(const Args& p) { return paired(p) ? L : 2 * L; }
INLINE int64_t panels(const Args& p) {
    return (p.N + outputs_per_panel(p) - 1) / outputs_per_panel(p);
}

// A short input is appended to the state; a long one has panels of its own, without O beside them.
INLINE int64_t appended(const Args& p) { return p.op != BACKWARD && p.I <= L ? p.I : 0; }
INLINE int64_t separate(const Args& p) { return p.op != BACKWARD && p.I > L ? p.I : 0; }

INLINE int64_t panel_size(const Args& p) {
    const int64_t turning = p.op != FORWARD && p.filter == DENSE ? p.N : 0;
    return (p.N + appended(p) + turning) * 2 * L;
}
INLINE int64_t input_panel_size(const Args& p) { return separate(p) * outputs_per_panel(p); }

static void pack(const Args& p, int64_t t, real* to) {
    const int64_t N = p.N, few = appended(p);
    const real *W = (const real*)p.W + t * p.W_step, *W_i = (const real*)p.W_i;
    const real* O = p.filter == DENSE ? (const real*)p.O0 + t * p.O_step : nullptr;
    for (int64_t i = 0; i < panels(p); i++, to += panel_size(p)) {
        const int64_t j = i * outputs_per_panel(p);
        real* behind = to + N * 2 * L;
        if (p.op == BACKWARD) {
            pack_columns(to, W, j, N, N);
            if (O) pack_columns(behind, O, j, N, N);
            continue;
        }
        const bool beside = paired(p);
        const int64_t j1 = beside ? j : j + L;
        pack_rows(to, 2, 0, W + j * N, N - j, N);
        pack_rows(to, 2, 1, (beside ? O : W) + j1 * N, N - j1, N);
        pack_rows(behind, 2, 0, W_i + j * p.I, N - j, few);
        pack_rows(behind, 2, 1, W_i + j1 * p.I, beside ? 0 : N - j1, few);
        if (O && !beside) pack_columns(behind + few * 2 * L, O, j, N, N);
    }
}

static void pack_input(const Args& p, real* to) {
    const int width = paired(p) ? 1 : 2;
    const real* W_i = (const real*)p.W_i;
    for (int64_t i = 0; i < panels(p); i++, to += input_panel_size(p))
        for (int v = 0; v < width; v++) {
            const int64_t j = i * outputs_per_panel(p) + v * L;
            pack_rows(to, width, v, W_i + j * p.I, p.N - j, p.I);
        }
}

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
    const int each = paired(p) ? 1 : 2;
    const int64_t shares = panels(p) * tiles(m) * blocks(s.K);
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
            memcpy(s.now + l * s.ld + p.N, u + l * p.u_row, p.I * sizeof(real));
            odd = odd || (paired(p) && !finite(u + l * p.u_row, p.I));
        }
    const int64_t groups = groups_of(m, s.K);
    for (int64_t i = 0; i < panels(p); i++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t from = m * g / groups, rows = m * (g + 1) / groups - from;
            real* C = s.C + from * 2 * L;
            multiply(s, rows, s.K, s.now + from * s.ld, s.ld, s.panels + i * panel_size(p), 2, C,
                     true);
            if (odd)
                turn_again(s, rows, s.now + from * s.ld, s.panels + i * panel_size(p), C);
            if (separate(p))
                multiply(s, rows, p.I, u + from * p.u_row, p.u_row,
                         s.input_panels + i * input_panel_size(p), each, C, false);
            for (int v = 0; v < each && i * each + v < s.vectors; v++)
                update(s, t, i * each + v, from, rows, C + v * L);
        }
}

static void backward_wide(Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    const int64_t products = p.filter == DENSE ? 2 : 1;
    const int64_t shares = products * panels(p) * tiles(m) * blocks(p.N);
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
        multiply(s, m, p.N, s.now, 2 * s.ld, panel, 2, s.C, true);
        if (p.filter == DENSE)
            multiply(s, m, p.N, s.now + s.ld, 2 * s.ld, panel + p.N * 2 * L, 2, s.C, false);
        for (int v = 0; v < 2 && 2 * i + v < s.vectors; v++)
            flow(s, t, 2 * i + v, 0, m, s.C + v * L);
    }
}
