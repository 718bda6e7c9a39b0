// One step of few rows, and its adjoint: the weights are read in place, and nothing is allocated.
// For a cell in a loop of the user's, where a call must cost less than the sweep's preparations.
// Included once per ISA and dtype (native.cpp).

INLINE int lanes_left(int64_t n) { return n < L ? int(n) : int(L); }

INLINE V alpha_of(const Step& p, int64_t j, int n) {
    if (!p.alpha) return fill(real(p.alpha_value));
    const real* alpha = (const real*)p.alpha;
    return p.alpha_unit ? load_part(alpha + j, n) : fill(*alpha);
}

// φ(y) and φ′(y) of neurons j … j + n − 1 at state x and input u.
static V activate(const Step& p, const real* x, const real* u, int64_t j, int n, V* slope) {
    alignas(64) real y[L] = {}, d[L];
    if (p.b) store(y, load_part((const real*)p.b + j, n));
    dot_all_rows((const real*)p.W + j * p.N, n, p.N, x, y);
    const real* W_i = (const real*)p.W_i + j * p.I;
    if (p.I == 1)  // a column is contiguous
        store(y, fma(load_part(W_i, n), fill(*u), load(y)));
    else if (p.I)
        dot_all_rows(W_i, n, p.I, u, y);
    if (!smooth(p.phi)) return linear_phi(p.phi, load(y), slope);
    smooth_all(p.phi, 1, L, y, d);
    *slope = load(d);
    return load(y);
}

// (O x) of neurons j … j + n − 1.
static V filtered(const Step& p, const real* x, int64_t j, int n) {
    alignas(64) real Ox[L] = {};
    if (p.filter == DENSE) {
        dot_all_rows((const real*)p.O0 + j * p.N, n, p.N, x, Ox);
    } else if (p.filter == GATHER) {
        for (int i = 0; i < n; i++) Ox[i] = x[p.index[j + i]];
    } else if (p.filter == PLANES) {
        const V here = load_part(x + j, n);
        return fma(load_part((const real*)p.O1 + j, n), neighbours(here, n),
                   load_part((const real*)p.O0 + j, n) * here);
    } else {
        const real *cos = (const real*)p.O0 + j, *sin = (const real*)p.O1 + j;
        for (int i = 0; i < n; i++) Ox[i] = cos[i] * x[j + i] + sin[i] * x[p.index[j + i]];
    }
    return load(Ox);
}

// Rows are the inner loop: a block of weights is read from memory once for all of them.
static void step_forward(const Step& p) {
    for (int64_t j = 0; j < p.N; j += L) {
        const int n = lanes_left(p.N - j);
        const V alpha = alpha_of(p, j, n), beta = 1 - alpha;
        for (int64_t l = 0; l < p.B; l++) {
            const real* x = (const real*)p.x + l * p.N;
            V slope;
            const V f = activate(p, x, (const real*)p.u + l * p.I, j, n, &slope);
            const V x_next = fma(alpha, f, beta * filtered(p, x, j, n));
            store_part((real*)p.x_next + l * p.N + j, x_next, n);
        }
    }
}

// to (n, K) ← a xᵀ, or to += a xᵀ
static void outer(const real* a, int64_t n, const real* x, int64_t K, bool add, real* to) {
    for (int64_t i = 0; i < n; i++, to += K) {
        const V v = fill(a[i]);
        for (int64_t k = 0; k < K; k += L) {
            const int m = lanes_left(K - k);
            const V old = add ? load_part(to + k, m) : V{};
            store_part(to + k, fma(v, load_part(x + k, m), old), m);
        }
    }
}

// Oᵀ (1 − α) g of one row, by a structured filter, added to g_x.
static void flow_back(const Step& p, const real* g, real* g_x) {
    const real *alpha = (const real*)p.alpha, *cos = (const real*)p.O0, *sin = (const real*)p.O1;
    auto through = [&](int64_t i) {
        return (1 - (alpha ? alpha[i * p.alpha_unit] : real(p.alpha_value))) * g[i];
    };
    for (int64_t i = 0; i < p.N; i++) {
        const int64_t other = p.filter == PLANES ? i ^ 1 : p.inverse[i];
        const real v = other < p.N ? through(other) : real(0);
        g_x[i] += p.filter == GATHER ? v : cos[i] * through(i) - sin[i] * v;
    }
}

// With a = α φ′(y) g: ∂W = a xᵀ, ∂W_i = a uᵀ, ∂b = a, ∂u = W_iᵀ a, ∂x = Wᵀ a + Oᵀ (1 − α) g. The
// slopes are found again from x: that costs less than the array which would keep them.
static void step_backward(const StepAdjoint& q) {
    enum { CHUNK = 256 };  // neurons at a time, so that a needs no room but the stack's
    const Step& p = q.step;
    real *g_x = (real*)q.g_x, *g_u = (real*)q.g_u, *g_b = (real*)q.g_b;
    if (g_x) memset(g_x, 0, size_t(p.B * p.N) * sizeof(real));
    if (g_u) memset(g_u, 0, size_t(p.B * p.I) * sizeof(real));
    alignas(64) real a[CHUNK], through[CHUNK];
    for (int64_t from = 0; from < p.N; from += CHUNK) {
        const int64_t n = p.N - from < CHUNK ? p.N - from : int64_t(CHUNK);
        for (int64_t l = 0; l < p.B; l++) {
            const real *x = (const real*)p.x + l * p.N, *u = (const real*)p.u + l * p.I;
            const real* g = (const real*)q.g + l * p.N;
            for (int64_t j = 0; j < n; j += L) {
                const int m = lanes_left(n - j);
                const V alpha = alpha_of(p, from + j, m), lambda = load_part(g + from + j, m);
                V slope;
                activate(p, x, u, from + j, m, &slope);
                store(a + j, alpha * slope * lambda);
                store(through + j, (1 - alpha) * lambda);
            }
            const real one = 1;
            if (g_b) outer(&one, 1, a, n, l > 0, g_b + from);
            if (q.g_W) outer(a, n, x, p.N, l > 0, (real*)q.g_W + from * p.N);
            if (q.g_W_i) outer(a, n, u, p.I, l > 0, (real*)q.g_W_i + from * p.I);
            if (g_u)
                dot_all_columns((const real*)p.W_i + from * p.I, p.I, n, a, g_u + l * p.I);
            if (!g_x) continue;
            dot_all_columns((const real*)p.W + from * p.N, p.N, n, a, g_x + l * p.N);
            if (p.filter == DENSE)
                dot_all_columns((const real*)p.O0 + from * p.N, p.N, n, through, g_x + l * p.N);
        }
    }
    for (int64_t l = 0; l < p.B && g_x && p.filter != DENSE; l++)
        flow_back(p, (const real*)q.g + l * p.N, g_x + l * p.N);
}
