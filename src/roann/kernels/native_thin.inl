// Layout THIN: the weights are read in place, once per row. For calls with so few rows per weight
// (a cell at batch 1) that packing would cost more than the product.
// Included once per ISA and dtype (native.cpp).

// out[j] += S[j, :] · x for a row-major S (N, K): R rows at a time, from row j on.
template <int R>
static int64_t dot_rows(const real* S, int64_t N, int64_t K, const real* x, real* out, int64_t j) {
    const int64_t whole = K / L * L;
    const int rest = int(K - whole);
    const V x_rest = load_part(x + whole, rest);
    for (; j + R <= N; j += R) {
        const real* r = S + j * K;
        V c[R] = {};
        for (int64_t k = 0; k < whole; k += L) {
            const V v = load(x + k);
            UNROLL for (int i = 0; i < R; i++) {
                __builtin_prefetch(r + (i + R) * K + k);  // rows lie too close for the processor's
                c[i] = fma(load(r + i * K + k), v, c[i]);
            }
        }
        UNROLL for (int i = 0; i < R; i++) {
            if (rest) c[i] = fma(load_part(r + i * K + whole, rest), x_rest, c[i]);
            out[j + i] += sum(c[i]);
        }
    }
    return j;
}

static void dot_all_rows(const real* S, int64_t N, int64_t K, const real* x, real* out) {
    dot_rows<1>(S, N, K, x, out, dot_rows<4>(S, N, K, x, out, 0));
}

// out += Sᵀ x for a row-major S (K, N): W vectors of columns at a time.
template <int W>
static int64_t dot_columns(const real* S, int64_t N, int64_t K, const real* x, real* out,
                           int64_t j) {
    for (; j + W * L <= N; j += W * L) {
        V c[W];
        UNROLL for (int i = 0; i < W; i++) c[i] = load(out + j + i * L);
        for (int64_t k = 0; k < K; k++) {
            const V v = fill(x[k]);
            UNROLL for (int i = 0; i < W; i++)
                c[i] = fma(load(S + k * N + j + i * L), v, c[i]);
        }
        UNROLL for (int i = 0; i < W; i++) store(out + j + i * L, c[i]);
    }
    return j;
}

static void dot_all_columns(const real* S, int64_t N, int64_t K, const real* x, real* out) {
    int64_t j = dot_columns<8>(S, N, K, x, out, 0);
    j = dot_columns<2>(S, N, K, x, out, j);
    j = dot_columns<1>(S, N, K, x, out, j);
    for (; j < N; j++)
        for (int64_t k = 0; k < K; k++) out[j] += S[k * N + j] * x[k];
}

// The products of one row land in two lines behind each other in s.C: y, then O x.
static void forward_thin(const Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    real *y = s.C, *Ox = s.C + s.ld;
    for (int64_t l = 0; l < m; l++) {
        const real* x = s.now + l * s.ld;
        memset(s.C, 0, 2 * s.ld * sizeof(real));
        dot_all_rows((const real*)p.W + t * p.W_step, p.N, p.N, x, y);
        if (p.I)
            dot_all_rows((const real*)p.W_i, p.N, p.I,
                         input_at(p, t) + row(s, l) * p.u_row, y);
        if (p.filter == DENSE)
            dot_all_rows((const real*)p.O0 + t * p.O_step, p.N, p.N, x, Ox);
        for (int64_t j = 0; j < s.vectors; j++) {
            alignas(64) real both[2 * L];
            store(both, load(y + j * L));
            store(both + L, load(Ox + j * L));
            update(s, t, j, l, 1, both);
        }
    }
}

static void backward_thin(const Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    for (int64_t l = 0; l < m; l++) {
        const real* a = s.now + l * 2 * s.ld;
        memset(s.C, 0, s.ld * sizeof(real));
        dot_all_columns((const real*)p.W + t * p.W_step, p.N, p.N, a, s.C);
        if (p.filter == DENSE)
            dot_all_columns((const real*)p.O0 + t * p.O_step, p.N, p.N, a + s.ld, s.C);
        for (int64_t j = 0; j < s.vectors; j++) flow(s, t, j, l, 1, s.C + j * L);
    }
}
