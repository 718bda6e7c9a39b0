// What a sweep is told: one flat struct, mirrored by `Args` in library.py.
//
// Letters as in problem.py: B batch, T steps, N state, I input. Strides are in elements; the last
// dimension of every array is contiguous. A step stride of 0 means "shared by all steps".
#pragma once

#include <cstdint>

enum Op { FORWARD = 0, BACKWARD = 1, INVERSE = 2 };
enum Filter { DENSE = 0, GATHER = 1, ROTATION = 2, PLANES = 3 };
enum Phi { RELU = 0, TANH = 1, SIGMOID = 2, IDENTITY = 3, LEAKY_RELU = 4, SOFTPLUS = 5 };
enum Slopes { NO_SLOPES = 0, BIT_SLOPES = 1, REAL_SLOPES = 2, PARTS = 3 };

// How the work is laid on the vector lanes. It depends on the problem alone, never on the number of
// threads or on how the steps are cut into calls, so that neither changes a bit of the result.
enum Layout {
    WIDE = 0,    // lanes over outputs, weights packed into panels: many rows per weight
    NARROW = 1,  // lanes over the batch: N smaller than a vector
    THIN = 2,    // weights read in place: too few rows per weight to pay for packing
};

struct Args {
    int64_t op, dtype, isa, layout, phi, filter, slopes, threads;
    int64_t T, B, N, I;
    int64_t rounds;      // of the contraction that undoes a step
    int64_t begin, end;  // steps begin … end − 1 of this call; a sweep may be cut into several

    const void *x0, *u, *W, *W_i, *b, *alpha;
    int64_t x0_row, u_step, u_row, W_step, b_step, alpha_step, alpha_unit;
    // dense: matrix · gather: index, inverse · rotation: cos, sin, partner · planes: cos, sin
    const void *O0, *O1, *O2;
    int64_t O_step;
    // Or null. Sequences of unequal length: arrays over time hold the rows that move, and those of
    // step t begin at row starts[t]; t runs to T.
    const int64_t* starts;

    // Over time: (T, B, N), or (S, N) with `starts`; BIT_SLOPES have a bit for each number. PARTS are
    // no slopes, but what they follow from, see Note [One array for two] in problem.py.
    void *states, *slope;
    const void* g_states;                 // or null
    int64_t g_step, g_row;
    // Over time; (B, N) in and out: λ, or in the inverse sweep x.
    void *a, *lambda0;
    // Over time, with PARTS. `after`: x[t+1], read by the backward and written by the inverse sweep.
    // `moved`: λ (φ(y) − O x), what each row and step adds to the gradient of α.
    void *after, *moved;
    // Or null, NARROW alone. Instead of `a`, the gradients of W and b of every step, apart for each
    // group of L rows: (groups, T, N, N) and (groups, T, N). `x0` and `states` are then read.
    void *g_W, *g_b;
    void* packed;                         // weights, kept between the calls of one sweep
};
