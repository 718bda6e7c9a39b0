// What both sweeps share: the rows of one thread, the parameters of one step, and the elementwise
// part of the update and of its adjoint. Included once per ISA and dtype (native.cpp).

// One thread's share of a sweep. It owns rows row0, row0 + row_step, … of the batch, and scans
// them through all steps without meeting another thread.
struct Sweep {
    const Args* p;
    int64_t row0, row_step, rows;
    int64_t vectors;  // per row, the last one partly filled
    int64_t ld;       // length of a local row: an odd number of cache lines, against aliasing
    real *alpha, *beta, *bias;      // α, 1 − α and b of the current step
    real *cos, *sin;                // of the filter of the current step
    int32_t* index;
    real *now, *next;               // local rows: x, or [a, (1 − α) λ] in the backward sweep
    real *C;                        // one panel of products: (rows, 2 L)
    real *panels, *input_panels;    // packed weights
};

INLINE int lanes(const Sweep& s, int64_t j) {
    const int64_t n = s.p->N - j * L;
    return n < L ? int(n) : int(L);
}
INLINE int64_t row(const Sweep& s, int64_t l) { return s.row0 + l * s.row_step; }
INLINE int64_t offset(const Sweep& s, int64_t t, int64_t l) {
    return (t * s.p->B + row(s, l)) * s.p->N;
}

// How many of this thread's rows move at step t.
INLINE int64_t moving(const Sweep& s, int64_t t) {
    if (!s.p->batch_sizes) return s.rows;
    const int64_t m = (s.p->batch_sizes[t] - s.row0 + s.row_step - 1) / s.row_step;
    return m < 0 ? 0 : (m > s.rows ? s.rows : m);
}

static void load_update(Sweep& s, int64_t t) {
    const Args& p = *s.p;
    const real* alpha = (const real*)p.alpha + t * p.alpha_step;
    for (int64_t i = 0; i < p.N; i++) {
        s.alpha[i] = alpha[i * p.alpha_unit];
        s.beta[i] = 1 - s.alpha[i];
    }
    if (p.b) memcpy(s.bias, (const real*)p.b + t * p.b_step, p.N * sizeof(real));
}

// The filter as the sweep needs it: O forwards, Oᵀ backwards.
static void load_filter(Sweep& s, int64_t t) {
    const Args& p = *s.p;
    if (p.filter == DENSE) return;
    const bool transpose = p.op == BACKWARD;
    const void* which = p.filter == ROTATION ? p.O2 : (transpose ? p.O1 : p.O0);
    const int64_t* index = (const int64_t*)which + t * p.O_step;
    for (int64_t i = 0; i < p.N; i++) s.index[i] = int32_t(index[i]);
    if (p.filter == GATHER) return;
    const real* cos = (const real*)p.O0 + t * p.O_step;
    const real* sin = (const real*)p.O1 + t * p.O_step;
    for (int64_t i = 0; i < p.N; i++) {
        s.cos[i] = cos[i];
        s.sin[i] = transpose ? -sin[i] : sin[i];
    }
}

INLINE V structured(const Sweep& s, const real* x, int64_t j) {
    const V other = gather(x, s.index + j * L);
    if (s.p->filter == GATHER) return other;
    return fma(load(s.sin + j * L), other, load(s.cos + j * L) * load(x + j * L));
}

// x[t+1] = α φ(y + b) + (1 − α) O x, for one vector of one row.
INLINE void update(Sweep& s, int64_t t, int64_t l, int64_t j, V product, V Ox) {
    const Args& p = *s.p;
    const V y = product + load(s.bias + j * L);
    V slope;
    const V f = phi(p.phi, y, &slope);
    const V x = fma(load(s.alpha + j * L), f, load(s.beta + j * L) * Ox);
    store(s.next + l * s.ld + j * L, x);
    const int64_t at = offset(s, t, l) + j * L;
    store_part((real*)p.states + at, x, lanes(s, j));
    if (p.slopes == BIT_SLOPES)
        ((uint16_t*)p.slope)[(t * p.B + row(s, l)) * s.vectors + j] = uint16_t(positive(y));
    else if (p.slopes == REAL_SLOPES)
        store_part((real*)p.slope + at, slope, lanes(s, j));
}

// A row that does not move repeats its state; its slopes are zero.
static void repeat(Sweep& s, int64_t t, int64_t l) {
    const Args& p = *s.p;
    const real* from = t ? (const real*)p.states + offset(s, t - 1, l)
                         : (const real*)p.x0 + row(s, l) * p.x0_row;
    memcpy((real*)p.states + offset(s, t, l), from, p.N * sizeof(real));
    if (p.slopes == BIT_SLOPES)
        memset((uint16_t*)p.slope + (t * p.B + row(s, l)) * s.vectors, 0, s.vectors * 2);
    else if (p.slopes == REAL_SLOPES)
        memset((real*)p.slope + offset(s, t, l), 0, p.N * sizeof(real));
}

INLINE V slope_at(const Sweep& s, int64_t t, int64_t l, int64_t j) {
    const Args& p = *s.p;
    if (p.slopes == REAL_SLOPES)
        return load_part((const real*)p.slope + offset(s, t, l) + j * L, lanes(s, j));
    if (p.slopes == NO_SLOPES) return fill(1);
    const unsigned bits = ((const uint16_t*)p.slope)[(t * p.B + row(s, l)) * s.vectors + j];
    return choose(bits, fill(1), fill(p.phi == RELU ? real(0) : real(0.01)));
}

// λ[t+1] in full, from what flowed back through later steps; then a = α φ′ λ and (1 − α) λ.
INLINE void adjoint(Sweep& s, int64_t t, int64_t l, int64_t j, V flowed, real* out) {
    const Args& p = *s.p;
    const int n = lanes(s, j);
    const int64_t at = offset(s, t, l) + j * L;
    V lambda = flowed;
    if (p.g_states)
        lambda += load_part(
            (const real*)p.g_states + t * p.g_step + row(s, l) * p.g_row + j * L, n);
    if (p.lambdas) store_part((real*)p.lambdas + at, lambda, n);
    const V a = load(s.alpha + j * L) * slope_at(s, t, l, j) * lambda;
    store_part((real*)p.a + at, a, n);
    store(out + l * 2 * s.ld + j * L, a);
    store(out + l * 2 * s.ld + s.ld + j * L, load(s.beta + j * L) * lambda);
}

// A row that does not move at step t passes λ through, and has a = 0.
static void pass(Sweep& s, int64_t t, int64_t l) {
    const Args& p = *s.p;
    real* lambda = (real*)p.lambda0 + row(s, l) * p.N;
    if (p.g_states) {
        const real* g = (const real*)p.g_states + t * p.g_step + row(s, l) * p.g_row;
        for (int64_t i = 0; i < p.N; i++) lambda[i] += g[i];
    }
    if (p.lambdas) memcpy((real*)p.lambdas + offset(s, t, l), lambda, p.N * sizeof(real));
    memset((real*)p.a + offset(s, t, l), 0, p.N * sizeof(real));
}

// What flowed back to step t: to the elementwise part of step t − 1, or to the caller.
INLINE void flow(Sweep& s, int64_t t, int64_t l, int64_t j, V flowed) {
    if (t > s.p->begin)
        adjoint(s, t - 1, l, j, flowed, s.next);
    else
        store_part((real*)s.p->lambda0 + row(s, l) * s.p->N + j * L, flowed, lanes(s, j));
}
