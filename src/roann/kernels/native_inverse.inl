// The inverse sweep: x[k] from x[k+1], step after step, each by a contraction (Note [Undoing a
// step] in memory.py): x ← Oᵀ (target − s φ(W x + c)), target = x[k+1] / (1 − α), s = α / (1 − α).
// Included once per ISA and dtype (native.cpp).

// What the way back needs of step t, local row l, vector j, in the form of the forward sweep.
INLINE void keep(const Sweep& s, int64_t t, int64_t j, int64_t l, V y, V slope_or_part) {
    const Args& p = *s.p;
    if (p.slopes == BIT_SLOPES)
        ((uint16_t*)p.slope)[place(s, t, l) * s.vectors + j] = uint16_t(positive(y));
    else if (p.slopes != NO_SLOPES)
        store_part((real*)p.slope + offset(s, t, l) + j * L, slope_or_part, lanes(s, j));
}

// Rows of x ← Oᵀ rows of `from`, both 2 ld apart.
static void turn_back(Sweep& s, int64_t m, const real* from) {
    const Args& p = *s.p;
    if (p.filter != DENSE) {
        for (int64_t j = 0; j < s.vectors; j++) {
            const Turn turn = turn_for(s, j);
            for (int64_t l = 0; l < m; l++)
                store_part(s.now + l * 2 * s.ld + j * L, turned(turn, from + l * 2 * s.ld),
                           lanes(s, j));
        }
        return;
    }
    const int64_t behind = (p.N + appended(p)) * 2 * L;
    for (int64_t i = 0; i < panels(p); i++) {
        const int each = vectors_of(p, i);
        multiply(s, i, m, p.N, from, 2 * s.ld, s.panels + i * panel_size(p) + behind, each, s.C,
                 true);
        for (int v = 0; v < each; v++) {
            const int64_t j = first_vector(p, i) + v;
            for (int64_t l = 0; l < m; l++)
                store_part(s.now + l * 2 * s.ld + j * L, load(s.C + l * 2 * L + v * L),
                           lanes(s, j));
        }
    }
}

// Vector j of rows of `next` ← target − s φ(y), with W x + W_i u in C (m, 2 L).
static void approach(Sweep& s, int64_t t, int64_t j, int64_t m, real* C, bool last) {
    const Args& p = *s.p;
    const V alpha = load(s.alpha + j * L), bias = load(s.bias + j * L);
    const V scale = alpha / load(s.beta + j * L);
    const bool curved = smooth(p.phi);
    for (int64_t l = 0; l < m; l++) store(C + l * 2 * L, load(C + l * 2 * L) + bias);
    if (curved) smooth_all(p.phi, m, 2 * L, C, s.D);
    for (int64_t l = 0; l < m; l++) {
        const V y = load(C + l * 2 * L);
        V slope, f;
        if (curved) {
            f = y;
            slope = load(s.D + l * 2 * L);
        } else {
            f = linear_phi(p.phi, y, &slope);
        }
        const V Ox = fma(-scale, f, load(s.now + l * 2 * s.ld + s.ld + j * L));
        store(s.next + l * 2 * s.ld + j * L, Ox);
        if (last) keep(s, t, j, l, y, p.slopes == PARTS ? part_of(alpha, f, Ox) : slope);
    }
}

// Local rows hold x, and the target behind it. The padding of β is 1, so that nothing divides by 0.
static void inverse_wide(Sweep& s, int64_t t, int64_t m) {
    const Args& p = *s.p;
    if (p.slopes == PARTS)
        for (int64_t l = 0; l < m; l++)
            memcpy((real*)p.after + offset(s, t, l), s.now + l * 2 * s.ld, p.N * sizeof(real));
    for (int64_t l = 0; l < m; l++)
        for (int64_t j = 0; j < s.vectors * L; j += L)
            store(s.now + l * 2 * s.ld + s.ld + j,
                  load_part(s.now + l * 2 * s.ld + j, lanes(s, j / L)) / load(s.beta + j));
    const real* u = input_at(p, t) + s.row0 * p.u_row;
    if (appended(p))
        for (int64_t l = 0; l < m; l++)
            memcpy(s.now + l * 2 * s.ld + p.N, u + l * p.u_row, p.I * sizeof(real));
    turn_back(s, m, s.now + s.ld);
    for (int64_t round = 1; round <= p.rounds; round++) {
        for (int64_t i = 0; i < panels(p); i++) {
            const int each = vectors_of(p, i);
            multiply(s, i, m, s.K, s.now, 2 * s.ld, s.panels + i * panel_size(p), each, s.C, true);
            if (separate(p))
                multiply(s, i, m, p.I, u, p.u_row, s.input_panels + i * input_panel_size(p), each,
                         s.C, false);
            for (int v = 0; v < each; v++)
                approach(s, t, first_vector(p, i) + v, m, s.C + v * L, round == p.rounds);
        }
        turn_back(s, m, s.next);
    }
    for (int64_t l = 0; l < m; l++)
        memcpy((real*)p.states + offset(s, t, l), s.now + l * 2 * s.ld, p.N * sizeof(real));
}

static void inverse_sweep(Sweep& s) {
    const Args& p = *s.p;
    int64_t before = 0;  // rows that moved at step t + 1: they are here already
    for (int64_t t = p.end - 1; t >= p.begin; t--) {
        const int64_t m = moving(s, t);
        for (int64_t l = before; l < m; l++)
            memcpy(s.now + l * 2 * s.ld, (const real*)p.lambda0 + row(s, l) * p.N,
                   p.N * sizeof(real));
        if (t == p.end - 1 || p.alpha_step || p.b_step) load_update(s, t);
        if (t == p.end - 1 || p.O_step) load_filter(s, t);
        if (stacked(p) && m) pack(p, t, s.panels);
        if (m) inverse_wide(s, t, m);
        before = m;
    }
    for (int64_t l = 0; l < before; l++)
        memcpy((real*)p.lambda0 + row(s, l) * p.N, s.now + l * 2 * s.ld, p.N * sizeof(real));
}
