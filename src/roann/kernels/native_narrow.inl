// Layout NARROW: lanes over the batch, for states of at most NARROWEST units, where lanes over
// outputs would be mostly empty. Rows are taken in groups of L.
// Included once per ISA and dtype (native.cpp).

enum { NARROWEST = 16 };

// Unit i of rows 0 … n − 1 into lanes, and back.
INLINE void load_lanes(const real* from, int64_t stride, int n, int64_t N, V* x) {
#if !defined(__clang__)
    if (N == 2 && stride == 2 && n == L) {  // deep and narrow networks live here
        IV even, odd;
        UNROLL for (int l = 0; l < L; l++) {
            even[l] = 2 * l;
            odd[l] = 2 * l + 1;
        }
        const V low = load(from), high = load(from + L);
        x[0] = __builtin_shuffle(low, high, even);
        x[1] = __builtin_shuffle(low, high, odd);
        return;
    }
#endif
    real lane[L] = {};
    for (int64_t i = 0; i < N; i++) {
        for (int l = 0; l < n; l++) lane[l] = from[l * stride + i];
        x[i] = load(lane);
    }
}
INLINE void store_lanes(real* to, int n, int64_t N, const V* x) {
#if !defined(__clang__)
    if (N == 2 && n == L) {
        IV low, high;
        UNROLL for (int l = 0; l < L; l++) {
            low[l] = l / 2 + l % 2 * L;
            high[l] = low[l] + L / 2;
        }
        store(to, __builtin_shuffle(x[0], x[1], low));
        store(to + L, __builtin_shuffle(x[0], x[1], high));
        return;
    }
#endif
    for (int l = 0; l < n; l++)
        for (int64_t i = 0; i < N; i++) to[l * N + i] = ((const real*)(x + i))[l];
}

INLINE int moving_lanes(const Args& p, int64_t t, int64_t group) {
    const int64_t n = moving_rows(p, t) - group * L;
    return n < 0 ? 0 : (n > L ? int(L) : int(n));
}
INLINE int group_rows(const Args& p, int64_t group) {
    const int64_t n = p.B - group * L;
    return n > L ? int(L) : int(n);
}

// One unit of O x (or Oᵀ x).
INLINE V filtered(const Args& p, int64_t t, int64_t N, int64_t j, const V* x) {
    const int64_t at = t * p.O_step;
    const bool transpose = p.op != FORWARD;
    if (p.filter == DENSE) {
        const real* O = (const real*)p.O0 + at;
        V c = {};
        for (int64_t k = 0; k < N; k++)
            c = fma(fill(transpose ? O[k * N + j] : O[j * N + k]), x[k], c);
        return c;
    }
    if (p.filter == GATHER) return x[((const int64_t*)(transpose ? p.O1 : p.O0))[at + j]];
    const real cos = ((const real*)p.O0)[at + j], sin = ((const real*)p.O1)[at + j];
    const int64_t other = p.filter == PLANES ? j ^ 1 : ((const int64_t*)p.O2)[at + j];
    if (other >= N) return fill(cos) * x[j];  // the last unit of an odd N
    return fma(fill(transpose ? -sin : sin), x[other], fill(cos) * x[j]);
}

template <int FIXED>
static void forward_group(const Args& p, int64_t t, int64_t group, V* x, V* u) {
    const int64_t N = FIXED ? FIXED : p.N;
    const int n = moving_lanes(p, t, group);
    if (!n) return;
    const real *W = (const real*)p.W + t * p.W_step, *W_i = (const real*)p.W_i;
    const real *b = (const real*)p.b + t * p.b_step;
    const real *alpha = (const real*)p.alpha + t * p.alpha_step;
    V y[FIXED ? FIXED : NARROWEST], slope[FIXED ? FIXED : NARROWEST];
    if (p.I) load_lanes(input_at(p, t) + group * L * p.u_row, p.u_row, n, p.I, u);
    for (int64_t j = 0; j < N; j++) {
        y[j] = fill(p.b ? b[j] : real(0));
        for (int64_t i = 0; i < p.I; i++) y[j] = fma(fill(W_i[j * p.I + i]), u[i], y[j]);
        for (int64_t k = 0; k < N; k++) y[j] = fma(fill(W[j * N + k]), x[k], y[j]);
    }
    if (smooth(p.phi))
        smooth_all(p.phi, N, L, (real*)y, (real*)slope);
    else
        for (int64_t j = 0; j < N; j++) y[j] = linear_phi(p.phi, y[j], slope + j);
    const unsigned moving = first(n);
    for (int64_t j = 0; j < N; j++) {
        const V a = fill(alpha[j * p.alpha_unit]), Ox = filtered(p, t, N, j, x);
        if (p.slopes == PARTS) slope[j] = part_of(a, y[j], Ox);
        y[j] = choose(moving, fma(a, y[j], (1 - a) * Ox), x[j]);
    }
    for (int64_t j = 0; j < N; j++) x[j] = y[j];
    const int64_t at = (first_row(p, t) + group * L) * N;
    store_lanes((real*)p.states + at, n, N, x);
    if (p.slopes) store_lanes((real*)p.slope + at, n, N, slope);
}

// What a group of rows contributes to the gradients of W and b of step t.
template <int FIXED>
INLINE void sum_gradients(const Args& p, int64_t t, int64_t group, int n, const V* a) {
    const int64_t N = FIXED ? FIXED : p.N, at = group * p.T + t;
    V x[FIXED ? FIXED : NARROWEST];
    const real* before = t ? (const real*)p.states + first_row(p, t - 1) * N : (const real*)p.x0;
    const int64_t stride = t ? N : p.x0_row;
    load_lanes(before + group * L * stride, stride, n, N, x);
    real *g_W = (real*)p.g_W + at * N * N, *g_b = (real*)p.g_b + at * N;
    for (int64_t j = 0; j < N; j++) {
        for (int64_t k = 0; k < N; k++) g_W[j * N + k] = sum(a[j] * x[k]);
        g_b[j] = sum(a[j]);
    }
}

template <int FIXED>
static void backward_group(const Args& p, int64_t t, int64_t group, V* lambda) {
    const int64_t N = FIXED ? FIXED : p.N;
    const int n = moving_lanes(p, t, group);
    if (!n) return;
    const real *W = (const real*)p.W + t * p.W_step;
    const real *alpha = (const real*)p.alpha + t * p.alpha_step;
    const int64_t at = (first_row(p, t) + group * L) * N;
    enum { ROOM = FIXED ? FIXED : NARROWEST };
    V g[ROOM], kept[ROOM], a[ROOM], rest[ROOM], after[ROOM], moved[ROOM];
    if (p.slopes) load_lanes((const real*)p.slope + at, N, n, N, kept);
    const bool parts = p.slopes == PARTS;
    if (parts) load_lanes((const real*)p.after + at, N, n, N, after);
    if (p.g_states) load_lanes(gradient_at(p, t) + group * L * p.g_row, p.g_row, n, N, g);
    for (int64_t j = 0; j < N; j++) {
        if (p.g_states) lambda[j] += g[j];
        const V alpha_j = fill(alpha[j * p.alpha_unit]);
        const V beta_j = 1 - alpha_j;
        V slope = p.slopes == REAL_SLOPES ? kept[j] : choose(first(n), fill(1), V{});
        if (parts) {
            const V f = value_from(alpha_j, beta_j, kept[j], after[j]);
            slope = choose(first(n), slope_at(p.phi, f), V{});
            moved[j] = lambda[j] * moved_from(alpha_j, beta_j, kept[j], after[j]);
        }
        a[j] = alpha_j * slope * lambda[j];
        rest[j] = beta_j * lambda[j];
    }
    if (p.g_W)
        sum_gradients<FIXED>(p, t, group, n, a);
    else
        store_lanes((real*)p.a + at, n, N, a);
    if (parts) store_lanes((real*)p.moved + at, n, N, moved);
    for (int64_t k = 0; k < N; k++) {
        V c = filtered(p, t, N, k, rest);
        for (int64_t j = 0; j < N; j++) c = fma(fill(W[j * N + k]), a[j], c);
        lambda[k] = choose(first(n), c, lambda[k]);
    }
}

// One step back: see native_inverse.inl.
template <int FIXED>
static void inverse_group(const Args& p, int64_t t, int64_t group, V* x, V* u) {
    const int64_t N = FIXED ? FIXED : p.N;
    const int n = moving_lanes(p, t, group);
    if (!n) return;
    const real *W = (const real*)p.W + t * p.W_step, *W_i = (const real*)p.W_i;
    const real *b = (const real*)p.b + t * p.b_step;
    const real *alpha = (const real*)p.alpha + t * p.alpha_step;
    enum { ROOM = FIXED ? FIXED : NARROWEST };
    V target[ROOM], guess[ROOM], y[ROOM], slope[ROOM];
    const int64_t at = (first_row(p, t) + group * L) * N;
    if (p.slopes == PARTS) store_lanes((real*)p.after + at, n, N, x);
    if (p.I) load_lanes(input_at(p, t) + group * L * p.u_row, p.u_row, n, p.I, u);
    for (int64_t j = 0; j < N; j++) target[j] = x[j] / (1 - fill(alpha[j * p.alpha_unit]));
    for (int64_t j = 0; j < N; j++) guess[j] = filtered(p, t, N, j, target);
    for (int64_t round = 0; round < p.rounds; round++) {
        for (int64_t j = 0; j < N; j++) {
            y[j] = fill(p.b ? b[j] : real(0));
            for (int64_t i = 0; i < p.I; i++) y[j] = fma(fill(W_i[j * p.I + i]), u[i], y[j]);
            for (int64_t k = 0; k < N; k++) y[j] = fma(fill(W[j * N + k]), guess[k], y[j]);
        }
        if (smooth(p.phi))
            smooth_all(p.phi, N, L, (real*)y, (real*)slope);
        else
            for (int64_t j = 0; j < N; j++) y[j] = linear_phi(p.phi, y[j], slope + j);
        for (int64_t j = 0; j < N; j++) {
            const V a = fill(alpha[j * p.alpha_unit]);
            const V Ox = fma(-a / (1 - a), y[j], target[j]);
            if (p.slopes == PARTS) slope[j] = part_of(a, y[j], Ox);
            y[j] = Ox;
        }
        for (int64_t j = 0; j < N; j++) guess[j] = filtered(p, t, N, j, y);
    }
    const unsigned moving = first(n);
    for (int64_t j = 0; j < N; j++) x[j] = choose(moving, guess[j], x[j]);
    store_lanes((real*)p.states + at, n, N, x);
    if (p.slopes) store_lanes((real*)p.slope + at, n, N, slope);
}

// All steps for groups first_group … last_group − 1; `work` holds their state and one input.
template <int FIXED>
static void sweep_groups(const Args& p, int64_t first_group, int64_t last_group, V* work) {
    const int64_t N = p.N, groups = last_group - first_group;
    V* u = work + groups * N;
    const bool back = p.op != FORWARD;
    const real* from = (const real*)(back ? p.lambda0 : p.x0);
    int64_t stride = back ? N : p.x0_row;
    if (!back && p.begin) {
        from = (const real*)p.states + first_row(p, p.begin - 1) * N;
        stride = N;
    }
    for (int64_t i = 0; i < groups; i++) {
        const int64_t group = first_group + i;
        const int rows = back ? group_rows(p, group) : moving_lanes(p, p.begin, group);
        load_lanes(from + group * L * stride, stride, rows, N, work + i * N);
    }
    if (!back) {
        for (int64_t t = p.begin; t < p.end; t++)
            for (int64_t i = 0; i < groups; i++)
                forward_group<FIXED>(p, t, first_group + i, work + i * N, u);
        return;
    }
    for (int64_t t = p.end - 1; t >= p.begin; t--)
        for (int64_t i = 0; i < groups; i++)
            if (p.op == BACKWARD)
                backward_group<FIXED>(p, t, first_group + i, work + i * N);
            else
                inverse_group<FIXED>(p, t, first_group + i, work + i * N, u);
    for (int64_t i = 0; i < groups; i++) {
        const int64_t group = first_group + i;
        store_lanes((real*)p.lambda0 + group * L * N, group_rows(p, group), N, work + i * N);
    }
}
