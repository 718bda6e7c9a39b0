// What one step of few rows, and its adjoint, are told. Letters as in problem.py; every array is
// contiguous: x, x_next and g are (B, N), u is (B, I).
#pragma once

#include <cstdint>

struct Step {
    int64_t phi, filter, dtype, B, N, I;
    double alpha_value;                 // α, where `alpha` is null
    const void* alpha;                  // () or (N,), or null
    int64_t alpha_unit;                 // 1 if there is an α of each neuron, else 0
    const void *x, *u, *W, *W_i, *b;    // u and W_i if I > 0; b or null
    const void *O0, *O1;                // dense: matrix · rotation and planes: cos, sin
    const int64_t *index, *inverse;     // gather: both · rotation: its partner, twice
    void* x_next;
};

// Its adjoint reads the same, without x_next, and writes every gradient that is not null.
struct StepAdjoint {
    Step step;
    const void* g;
    void *g_x, *g_u, *g_W, *g_W_i, *g_b;
};
