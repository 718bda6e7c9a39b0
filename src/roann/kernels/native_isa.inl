// One build of the kernel, for one ISA and one dtype: native.cpp includes this file six times,
// each time in a namespace of its own and with
//   ROANN_LEVEL (0 baseline, 1 AVX2, 2 AVX-512), VECTOR_BYTES, TILE_ROWS, real, integer.

#include "native_vector.inl"
#include "native_sweep.inl"
#include "native_wide.inl"
#include "native_thin.inl"
#include "native_narrow.inl"
#include "native_step.inl"
#include "native_outer.inl"

static bool stacked(const Args& p) { return p.W_step || (p.filter == DENSE && p.O_step); }

#include "native_inverse.inl"

static bool shares_panels(const Args& p) { return p.layout == WIDE && !stacked(p); }

// Bytes of the packed weights that all threads share.
static int64_t packed_bytes(const Args& p) {
    return panels(p) * (panel_size(p) + input_panel_size(p)) * int64_t(sizeof(real));
}

static void pack_shared(const Args& p) {
    real* to = (real*)p.packed;
    pack(p, 0, to);
    if (separate(p)) pack_input(p, to + panels(p) * panel_size(p));
}

// Lays out a thread's workspace and returns its size; with `from` null, only measures it.
static int64_t carve(Sweep& s, char* from) {
    const Args& p = *s.p;
    int64_t top = 0;
    auto take = [&](int64_t bytes) {
        char* piece = from ? from + top : nullptr;
        top += (bytes + 63) / 64 * 64;
        return piece;
    };
    s.vectors = (p.N + L - 1) / L;
    s.K = p.N + appended(p);
    const int64_t width = (s.K + L - 1) / L * VECTOR_BYTES;
    s.ld = ((width + 63) / 64 | 1) * 64 / int64_t(sizeof(real));
    const int64_t line = s.ld * int64_t(sizeof(real));
    const int64_t block = s.rows * line * (p.op == FORWARD ? 1 : 2);
    s.alpha = (real*)take(line);
    s.beta = (real*)take(line);
    s.bias = (real*)take(line);
    s.cos = (real*)take(line);
    s.sin = (real*)take(line);
    s.index = (int32_t*)take(line);
    s.now = (real*)take(block);
    s.next = (real*)take(block);
    const int64_t panel = s.rows * 2 * VECTOR_BYTES;
    const int64_t products = panel < 2 * line ? 2 * line : panel;
    s.C = (real*)take(products);
    s.D = (real*)take(products);
    const int64_t cleared = top;
    if (p.layout == WIDE && stacked(p)) s.panels = (real*)take(packed_bytes(p));
    if (from) {
        memset(from, 0, size_t(cleared));
        for (int64_t i = 0; p.op != FORWARD && i < s.ld; i++) s.beta[i] = 1;
    }
    return top;
}

static void forward_sweep(Sweep& s) {
    const Args& p = *s.p;
    for (int64_t l = 0; l < moving(s, p.begin); l++) {
        const real* x = p.begin ? (const real*)p.states + offset(s, p.begin - 1, l)
                                : (const real*)p.x0 + row(s, l) * p.x0_row;
        memcpy(s.now + l * s.ld, x, p.N * sizeof(real));
    }
    for (int64_t t = p.begin; t < p.end; t++) {
        if (t == p.begin || p.alpha_step || p.b_step) load_update(s, t);
        if (t == p.begin || p.O_step) load_filter(s, t);
        const int64_t m = moving(s, t);
        if (p.layout == WIDE) {
            if (stacked(p) && m) pack(p, t, s.panels);
            forward_wide(s, t, m);
        } else {
            forward_thin(s, t, m);
        }
        real* x = s.now;
        s.now = s.next;
        s.next = x;
    }
}

static void backward_sweep(Sweep& s) {
    const Args& p = *s.p;
    int64_t before = 0;  // rows that moved at step t + 1: their λ has flowed back already
    load_update(s, p.end - 1);
    for (int64_t t = p.end - 1; t >= p.begin; t--) {
        const int64_t m = moving(s, t);
        for (int64_t l = before; l < m; l++) {
            real* lambda = s.C;
            memcpy(lambda, (const real*)p.lambda0 + row(s, l) * p.N, p.N * sizeof(real));
            for (int64_t j = 0; j < s.vectors; j++)
                adjoint(s, t, j, l, 1, lambda + j * L, nullptr, s.now);
        }
        if (t > p.begin && (p.alpha_step || p.b_step)) load_update(s, t - 1);
        if (t == p.end - 1 || p.O_step) load_filter(s, t);
        if (p.layout == WIDE) {
            if (stacked(p) && m) pack(p, t, s.panels);
            backward_wide(s, t, m);
        } else {
            backward_thin(s, t, m);
        }
        real* rows = s.now;
        s.now = s.next;
        s.next = rows;
        before = m;
    }
}

// What is shared out, in rows: NARROW takes them in groups.
static int64_t unit(const Args& p) { return p.layout == NARROW ? L : 1; }

static Sweep share(const Args& p, int64_t from, int64_t to) {
    Sweep s = {};
    s.p = &p;
    s.row0 = from;
    s.rows = to - from;
    return s;
}

static int64_t work_bytes(const Args& p, int64_t from, int64_t to) {
    if (p.layout == NARROW) return ((to - from + L - 1) / L * p.N + p.I) * VECTOR_BYTES;
    Sweep s = share(p, from, to);
    return carve(s, nullptr);
}

// One thread's part: rows from … to − 1.
static void run(const Args& p, int64_t from, int64_t to, char* work) {
    if (p.layout == NARROW) {
        const int64_t first = from / L, last = (to + L - 1) / L;
        if (p.N == 2)
            sweep_groups<2>(p, first, last, (V*)work);
        else
            sweep_groups<0>(p, first, last, (V*)work);
        return;
    }
    Sweep s = share(p, from, to);
    carve(s, work);
    if (p.layout == WIDE) {
        if (!stacked(p)) s.panels = (real*)p.packed;
        s.input_panels = s.panels + panels(p) * panel_size(p);
        if (stacked(p) && separate(p)) pack_input(p, s.input_panels);
    }
    if (p.op == FORWARD)
        forward_sweep(s);
    else if (p.op == BACKWARD)
        backward_sweep(s);
    else
        inverse_sweep(s);
}

// What native.cpp needs to know of this build.
static const Build BUILD = {L,          shares_panels,    packed_bytes,    pack_shared,
                            unit,       work_bytes,       run,             step_forward,
                            step_backward, outer_work_bytes, outer_sum_bytes, outer_groups,
                            sum_rows,   add_part};
