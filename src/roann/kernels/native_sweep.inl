// What both sweeps share: the rows of one thread, the parameters of one step, and the elementwise
// part of the update and of its adjoint. Included once per ISA and dtype (native.cpp).

// Rows of memory that will be touched soon, being called for.
struct Ahead {
    const char *at, *end;            // what is left of the current row
    int64_t rows, row_bytes, skip;   // rows behind it, their length, and the gap between two
    int64_t share;                   // lines to call for at a time
    bool write;
};
// Rows of n numbers, `stride` apart, in so many shares.
static Ahead ahead_of(const real* array, int64_t n, int64_t stride, int64_t rows, int64_t shares,
                      bool write) {
    Ahead ahead = {};
    if (rows <= 0 || n <= 0 || shares <= 0) return ahead;
    const int64_t bytes = n * int64_t(sizeof(real));
    const bool solid = stride == n;  // rows that follow each other are one long row
    ahead.at = (const char*)array;
    ahead.row_bytes = solid ? rows * bytes : bytes;
    ahead.end = ahead.at + ahead.row_bytes;
    ahead.rows = solid ? 0 : rows - 1;
    ahead.skip = stride * int64_t(sizeof(real)) - bytes;
    ahead.share = (rows * bytes / 64 + (solid ? 1 : rows)) / shares + 1;
    ahead.write = write;
    return ahead;
}
INLINE void call_share(Ahead& ahead) {
    int64_t left = ahead.share;
    while (left > 0 && ahead.at) {
        const char* at = ahead.at;
        const int64_t lines = (ahead.end - at + 63) / 64, n = lines < left ? lines : left;
        for (const char* stop = at + 64 * n; at < stop; at += 64) {
            if (ahead.write)
                __builtin_prefetch(at, 1, 2);
            else
                __builtin_prefetch(at, 0, 2);
        }
        left -= n;
        ahead.at = at;
        if (n < lines) return;
        const bool more = ahead.rows-- > 0;
        ahead.at = more ? ahead.end + ahead.skip : nullptr;
        ahead.end = ahead.at + ahead.row_bytes;
    }
}

// One thread's share of a sweep. It owns `rows` rows of the batch, from row0 on, and scans
// them through all steps without meeting another thread.
struct Sweep {
    const Args* p;
    int64_t row0, rows;
    int64_t vectors;  // per row, the last one partly filled
    int64_t K;        // length of what the panels multiply: N, and a short input behind it
    int64_t ld;       // length of a local row: an odd number of cache lines, against aliasing
    real *alpha, *beta, *bias;      // α, 1 − α and b of the current step
    real *cos, *sin;                // of the filter of the current step
    int32_t* index;
    real *now, *next;               // local rows: x, or [a, (1 − α) λ] backwards, or [x, target]
    real *C, *D;                    // one panel of products, and of slopes: (rows, 2 L)
    real *panels, *input_panels;    // packed weights
    Ahead ahead[3];
};

INLINE int lanes(const Sweep& s, int64_t j) {
    const int64_t n = s.p->N - j * L;
    return n < L ? int(n) : int(L);
}
INLINE int64_t row(const Sweep& s, int64_t l) { return s.row0 + l; }

// Where step t begins in an array over time, in rows; in the input, and in the gradient.
INLINE int64_t first_row(const Args& p, int64_t t) { return p.starts ? p.starts[t] : t * p.B; }
INLINE const real* input_at(const Args& p, int64_t t) {
    return (const real*)p.u + (p.starts ? p.starts[t] * p.u_row : t * p.u_step);
}
INLINE const real* gradient_at(const Args& p, int64_t t) {
    return (const real*)p.g_states + (p.starts ? p.starts[t] * p.g_row : t * p.g_step);
}
INLINE int64_t place(const Sweep& s, int64_t t, int64_t l) {
    return first_row(*s.p, t) + row(s, l);
}
INLINE int64_t offset(const Sweep& s, int64_t t, int64_t l) { return place(s, t, l) * s.p->N; }

// How many of all rows, and of this thread's, move at step t.
INLINE int64_t moving_rows(const Args& p, int64_t t) {
    return p.starts ? p.starts[t + 1] - p.starts[t] : p.B;
}
INLINE int64_t moving(const Sweep& s, int64_t t) {
    if (!s.p->starts) return s.rows;
    const int64_t m = moving_rows(*s.p, t) - s.row0;
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

// The filter as the sweep needs it: O forwards, Oᵀ otherwise.
static void load_filter(Sweep& s, int64_t t) {
    const Args& p = *s.p;
    if (p.filter == DENSE) return;
    const bool transpose = p.op != FORWARD;
    if (p.filter != PLANES) {
        const void* which = p.filter == ROTATION ? p.O2 : (transpose ? p.O1 : p.O0);
        const int64_t* index = (const int64_t*)which + t * p.O_step;
        for (int64_t i = 0; i < p.N; i++) s.index[i] = int32_t(index[i]);
    }
    if (p.filter == GATHER) return;
    const real* cos = (const real*)p.O0 + t * p.O_step;
    const real* sin = (const real*)p.O1 + t * p.O_step;
    for (int64_t i = 0; i < p.N; i++) {
        s.cos[i] = cos[i];
        s.sin[i] = transpose ? -sin[i] : sin[i];
    }
}

// Vector j of O x (or Oᵀ x) by a structured filter: what it needs, and the vector itself.
struct Turn {
    const int32_t* index;
    V cos, sin;
    int64_t filter, at;
    int lanes;
};
INLINE Turn turn_for(const Sweep& s, int64_t j) {
    return {s.index + j * L, load(s.cos + j * L), load(s.sin + j * L), s.p->filter, j * L,
            lanes(s, j)};
}
INLINE V turned(const Turn& turn, const real* x) {
    const V here = load(x + turn.at);
    if (turn.filter == PLANES)
        return fma(turn.sin, neighbours(here, turn.lanes), turn.cos * here);
    const V v = gather(x, turn.index);
    return turn.filter == ROTATION ? fma(turn.sin, v, turn.cos * here) : v;
}

// See Note [One array for two] in problem.py.
INLINE V part_of(V alpha, V f, V Ox) { return alpha > real(LARGE_ALPHA) ? Ox : f; }
INLINE V value_from(V alpha, V beta, V part, V after) {
    return alpha > real(LARGE_ALPHA) ? (after - beta * part) / alpha : part;
}
INLINE V moved_from(V alpha, V beta, V part, V after) {
    return alpha > real(LARGE_ALPHA) ? (after - part) / alpha : (part - after) / beta;
}

// x[t+1] = α φ(y + b) + (1 − α) O x, for vector j of rows first … first + m − 1. W x + W_i u is in
// C (m, 2 L), with O x beside it if the filter is dense. What the loop needs is copied out of the
// structs first: its stores may alias anything.
static void update(const Sweep& s, int64_t t, int64_t j, int64_t from, int64_t m, real* C) {
    const Args& p = *s.p;
    const V alpha = load(s.alpha + j * L), beta = load(s.beta + j * L), bias = load(s.bias + j * L);
    const int64_t code = p.phi, ld = s.ld, N = p.N;
    const bool dense = p.filter == DENSE, parts = p.slopes == PARTS;
    const bool keeps = parts || p.slopes == REAL_SLOPES;
    const int n = lanes(s, j);
    const real* now = s.now + from * ld;
    const Turn turn = turn_for(s, j);
    real *D = s.D, *next = s.next + from * ld + j * L;
    real* states = (real*)p.states + offset(s, t, from) + j * L;
    real* slopes = (real*)p.slope + offset(s, t, from) + j * L;
    uint16_t* bits = p.slopes == BIT_SLOPES
                         ? (uint16_t*)p.slope + place(s, t, from) * s.vectors + j
                         : nullptr;
    const int64_t bits_step = s.vectors;
    const bool curved = smooth(code);
    if (curved) {
        for (int64_t l = 0; l < m; l++) store(C + l * 2 * L, load(C + l * 2 * L) + bias);
        smooth_all(code, m, 2 * L, C, D);
    }
    for (int64_t l = 0; l < m; l++) {
        V f = load(C + l * 2 * L), slope;
        if (curved) {
            slope = load(D + l * 2 * L);
        } else {
            const V y = f + bias;
            f = linear_phi(code, y, &slope);
            if (bits) bits[l * bits_step] = uint16_t(positive(y));
        }
        const V Ox = dense ? load(C + l * 2 * L + L) : turned(turn, now + l * ld);
        const V x = fma(alpha, f, beta * Ox);
        store(next + l * ld, x);
        store_part(states + l * N, x, n);
        if (keeps) store_part(slopes + l * N, parts ? part_of(alpha, f, Ox) : slope, n);
    }
}

// Memory the next step will touch is called for a share at a time, between tiles: without this,
// most of the elementwise time is waiting. `array` is row 0 of this thread at that step; `stride`
// leads from one of its rows to the next.
static void call_ahead(Sweep& s, int which, const real* array, int64_t stride, int64_t rows,
                       int64_t shares, bool write) {
    s.ahead[which] = ahead_of(array, s.p->N, stride, rows, shares, write);
}
INLINE void call_share(Sweep& s) {
    for (Ahead& ahead : s.ahead) call_share(ahead);
}

// From what flowed back to x[t+1] through later steps, in C (m, 2 L) and, if not null, by a
// structured filter from rows of `through`: λ[t+1] in full, then a = α φ′ λ and (1 − α) λ, for
// vector j of rows from … from + m − 1.
static void adjoint(const Sweep& s, int64_t t, int64_t j, int64_t from, int64_t m, const real* C,
                    const real* through, real* out) {
    const Args& p = *s.p;
    const V alpha = load(s.alpha + j * L), beta = load(s.beta + j * L);
    const V leak = fill(p.phi == RELU ? real(0) : real(0.01));
    const int n = lanes(s, j);
    const int64_t ld = s.ld, N = p.N, at = offset(s, t, from) + j * L;
    const real* g =
        p.g_states ? gradient_at(p, t) + row(s, from) * p.g_row + j * L : nullptr;
    const bool parts = p.slopes == PARTS;
    const real* after = (const real*)p.after + at;
    real* moved = (real*)p.moved + at;
    real* a_out = (real*)p.a + at;
    const bool keeps = parts || p.slopes == REAL_SLOPES;
    const real* slopes = (const real*)p.slope + at;
    const uint16_t* bits = p.slopes == BIT_SLOPES
                               ? (const uint16_t*)p.slope + place(s, t, from) * s.vectors + j
                               : nullptr;
    const int64_t code = p.phi, g_row = p.g_row, bits_step = s.vectors;
    const Turn turn = turn_for(s, j);
    out += from * 2 * ld + j * L;
    for (int64_t l = 0; l < m; l++) {
        V lambda = load(C + l * 2 * L);
        if (through) lambda += turned(turn, through + l * 2 * ld);
        if (g) lambda += load_part(g + l * g_row, n);
        V slope = fill(1);
        if (keeps) slope = load_part(slopes + l * N, n);
        if (parts) {
            const V part = slope, x = load_part(after + l * N, n);
            slope = slope_at(code, value_from(alpha, beta, part, x));
            store_part(moved + l * N, lambda * moved_from(alpha, beta, part, x), n);
        }
        if (bits) slope = choose(bits[l * bits_step], slope, leak);
        const V a = alpha * slope * lambda;
        store_part(a_out + l * N, a, n);
        store(out + l * 2 * ld, a);
        store(out + l * 2 * ld + ld, beta * lambda);
    }
}

// What flowed back to x[t]: on to the elementwise part of step t − 1, or, at the last step of this
// call, to the caller.
static void flow(const Sweep& s, int64_t t, int64_t j, int64_t from, int64_t m, const real* C) {
    const Args& p = *s.p;
    const real* through = p.filter == DENSE ? nullptr : s.now + from * 2 * s.ld + s.ld;
    if (t > p.begin) return adjoint(s, t - 1, j, from, m, C, through, s.next);
    for (int64_t l = 0; l < m; l++) {
        V lambda = load(C + l * 2 * L);
        if (through) lambda += turned(turn_for(s, j), through + l * 2 * s.ld);
        store_part((real*)p.lambda0 + row(s, from + l) * p.N + j * L, lambda, lanes(s, j));
    }
}
