// What a sum over rows is told: one flat struct, mirrored by `Outer` in library.py.
#pragma once

#include <cstdint>

enum { JOBS = 16 };  // that the work is cut into, about, whatever the number of threads

// W += aᵀ x, W_i += aᵀ u and b += aᵀ 1, for a (rows, N), x (rows, M) and u (rows, I). The last
// dimension of every array is contiguous; the results have no gaps between rows.
struct Outer {
    int64_t dtype, isa, threads;
    int64_t rows, N, M, I;
    const void *a, *x, *u;
    int64_t a_row, x_row, u_row;
    int64_t symmetric;  // x is a, there is no u and no b: W is computed on one side of its diagonal
    void *W, *W_i, *b;  // or null; then M = 0, I = 0, or no sum of a
    void* sums;             // workspace, of roann_outer_bytes
    const int64_t* places;  // or null: which row of x belongs to each row of a
};
