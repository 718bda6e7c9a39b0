// One vector of `real`, and φ with its slope on it. Included once per ISA and dtype (native.cpp).

typedef real V __attribute__((vector_size(VECTOR_BYTES)));
typedef integer IV __attribute__((vector_size(VECTOR_BYTES)));
typedef real VU __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

enum { L = VECTOR_BYTES / sizeof(real), FLOAT = sizeof(real) == 4 };

INLINE V load(const real* p) { return *(const VU*)p; }
INLINE void store(real* p, V v) { *(VU*)p = v; }
INLINE V fill(real s) { return s - V{}; }  // s + 0 would lose the sign of −0

// The first n lanes only: what lies beyond belongs to somebody else.
INLINE V load_part(const real* p, int n) {
    if (n == L) return load(p);
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return (V)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
    else
        return (V)_mm512_maskz_loadu_pd(__mmask8((1u << n) - 1), p);
#else
    V v = {};
    memcpy(&v, p, n * sizeof(real));
    return v;
#endif
}
INLINE void store_part(real* p, V v, int n) {
    if (n == L) return store(p, v);
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
    else
        _mm512_mask_storeu_pd(p, __mmask8((1u << n) - 1), (__m512d)v);
#else
    memcpy(p, &v, n * sizeof(real));
#endif
}

INLINE V fma(V a, V b, V c) {
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    else
        return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif ROANN_LEVEL == 1
    if constexpr (FLOAT)
        return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    else
        return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

INLINE V gather(const real* base, const int32_t* index) {
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return (V)_mm512_mask_i32gather_ps((__m512)V{}, 0xffff, _mm512_loadu_si512(index), base, 4);
    else
        return (V)_mm512_mask_i32gather_pd((__m512d)V{}, 0xff,
                                           _mm256_loadu_si256((const __m256i*)index), base, 8);
#else
    V v = {};
    for (int l = 0; l < L; l++) v[l] = base[index[l]];
    return v;
#endif
}

// The neighbour of each of the first n lanes, 2 i of 2 i + 1 and the other way round; 0 for the last
// one of an odd n and beyond: what lies there may be infinite, and 0 · ∞ is no number.
INLINE V neighbours(V v, int n) {
#if ROANN_LEVEL == 2
    const unsigned pairs = (1u << n / 2 * 2) - 1;
    if constexpr (FLOAT)
        return (V)_mm512_maskz_permute_ps(__mmask16(pairs), (__m512)v, 0xB1);
    else
        return (V)_mm512_maskz_permute_pd(__mmask8(pairs), (__m512d)v, 0x55);
#else
    IV lane;
    UNROLL for (int l = 0; l < L; l++) lane[l] = l;
#if ROANN_LEVEL == 1
    V swapped;
    if constexpr (FLOAT)
        swapped = (V)_mm256_permute_ps((__m256)v, 0xB1);
    else
        swapped = (V)_mm256_permute_pd((__m256d)v, 0x5);
#elif defined(__clang__)
    V swapped = {};
    UNROLL for (int l = 0; l < L; l++) swapped[l] = v[l ^ 1];
#else
    const V swapped = __builtin_shuffle(v, lane ^ 1);
#endif
    return (V)((IV)swapped & (lane < integer(n / 2 * 2)));
#endif
}

INLINE real sum(V v) {
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return _mm512_reduce_add_ps((__m512)v);
    else
        return _mm512_reduce_add_pd((__m512d)v);
#else
    real part[L];
    store(part, v);
    for (int half = L / 2; half; half /= 2)
        for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
#endif
}

// Slopes of piecewise linear φ as bits: 1 where y > 0.
INLINE unsigned positive(V y) {
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return _mm512_cmp_ps_mask((__m512)y, _mm512_setzero_ps(), _CMP_GT_OQ);
    else
        return _mm512_cmp_pd_mask((__m512d)y, _mm512_setzero_pd(), _CMP_GT_OQ);
#elif ROANN_LEVEL == 1
    if constexpr (FLOAT)
        return _mm256_movemask_ps((__m256)(IV)(y > 0));
    else
        return _mm256_movemask_pd((__m256d)(IV)(y > 0));
#else
    unsigned bits = 0;
    for (int l = 0; l < L; l++) bits |= unsigned(y[l] > 0) << l;
    return bits;
#endif
}
INLINE V choose(unsigned bits, V yes, V no) {
#if ROANN_LEVEL == 2
    if constexpr (FLOAT)
        return (V)_mm512_mask_blend_ps(bits, (__m512)no, (__m512)yes);
    else
        return (V)_mm512_mask_blend_pd(bits, (__m512d)no, (__m512d)yes);
#else
    IV bit;
    for (int l = 0; l < L; l++) bit[l] = integer(1) << l;
    return ((IV{} + integer(bits)) & bit) != 0 ? yes : no;
#endif
}
INLINE unsigned first(int n) { return (1u << n) - 1; }

// The comparisons below are written so that NaN passes through.
INLINE V at_most(V x, real top) { return x > top ? fill(top) : x; }
INLINE V absolute(V x) { return (V)((IV)x & ~(IV)fill(real(-0.0))); }
INLINE V sign_of(V x, V magnitude) {
    return (V)(((IV)x & (IV)fill(real(-0.0))) | (IV)magnitude);
}

// 2ⁿ for n in the normal range.
INLINE V two_to(IV n) { return (V)((n + (FLOAT ? 127 : 1023)) << (FLOAT ? 23 : 52)); }

// eˣ − 1 = 2ⁿ (1 + p) − 1 with |r| ≤ ln 2 / 2, p = eʳ − 1 by its Taylor series, to the last bit.
INLINE V exp_parts(V x, IV* n) {
    const real magic = FLOAT ? real(12582912) : real(6755399441055744);
    const real ln2_high = FLOAT ? real(0.693359375) : real(6.93145751953125e-1);
    const real ln2_low = FLOAT ? real(-2.12194440e-4) : real(1.42860682030941723212e-6);
    const V shifted = fma(x, fill(real(1.4426950408889634)), fill(magic));
    *n = (IV)shifted - (IV)fill(magic);
    const V k = shifted - magic;
    const V r = fma(k, fill(-ln2_low), fma(k, fill(-ln2_high), x));
    static const double inverse_factorial[] = {
        1.0 / 2,         1.0 / 6,          1.0 / 24,         1.0 / 120,
        1.0 / 720,       1.0 / 5040,       1.0 / 40320,      1.0 / 362880,
        1.0 / 3628800,   1.0 / 39916800,   1.0 / 479001600,  1.0 / 6227020800};
    const int last = FLOAT ? 5 : 11;
    V q = fill(real(inverse_factorial[last]));
    UNROLL for (int i = last - 1; i >= 0; i--) q = fma(q, r, fill(real(inverse_factorial[i])));
    return fma(r * r, q, r);
}

// e^−|y|, down to the denormals.
INLINE V exp_minus(V y) {
    const V x = -at_most(absolute(y), FLOAT ? real(104) : real(746));
    IV n;
    const V p = exp_parts(x, &n);
    const IV half = n >> 1;
    return (p + 1) * two_to(half) * two_to(n - half);
}

// log(1 + e) for 0 ≤ e ≤ 1, as 2 artanh(s), s = e / (2 + e) ≤ 1/3.
INLINE V log1p_unit(V e) {
    const V s = e / (e + 2), s2 = s * s;
    const int terms = FLOAT ? 8 : 17;
    V q = fill(real(1.0 / (2 * terms - 1)));
    UNROLL for (int i = terms - 1; i >= 1; i--) q = fma(q, s2, fill(real(1.0 / (2 * i - 1))));
    return 2 * s * q;
}

// φ(y) and φ′(y), at the kinks as in activations.py.
INLINE V smooth_phi(int64_t code, V y, V* slope) {
    if (code == TANH) {
        IV n;
        const V p = exp_parts(2 * at_most(absolute(y), FLOAT ? 10 : 20), &n);
        const V s = two_to(n), e = fma(s, p, s - 1);  // e^2|y| − 1
        const V t = e / (e + 2);
        *slope = fma(-t, t, fill(1));
        return sign_of(y, t);
    }
    const V e = exp_minus(y), inverse = 1 / (e + 1);
    const V sigmoid = y < 0 ? e * inverse : inverse;
    if (code == SIGMOID) {
        *slope = e * inverse * inverse;
        return sigmoid;
    }
    *slope = sigmoid;  // softplus
    return (y < 0 ? fill(0) : y) + log1p_unit(e);
}
INLINE V linear_phi(int64_t code, V y, V* slope) {
    if (code == IDENTITY) {
        *slope = fill(1);
        return y;
    }
    const real leak = code == RELU ? real(0) : real(0.01);
    *slope = y > 0 ? fill(1) : fill(leak);
    return code == RELU ? (y <= 0 ? fill(0) : y) : (y > 0 ? y : y * leak);
}
// φ′ from f = φ(y).
INLINE V slope_at(int64_t code, V f) {
    if (code == TANH) return fma(-f, f, fill(1));
    if (code == SIGMOID) return f * (1 - f);
    if (code == IDENTITY) return fill(1);
    if (code != SOFTPLUS) return f > 0 ? fill(1) : fill(code == RELU ? real(0) : real(0.01));
    IV n;  // 1 − e^−f
    const V p = exp_parts(-at_most(f, FLOAT ? 20 : 40), &n), s = two_to(n);
    return -fma(s, p, s - 1);
}
INLINE bool smooth(int64_t code) { return code == TANH || code == SIGMOID || code == SOFTPLUS; }

// y ← φ(y) and slope ← φ′(y) for n vectors, `stride` apart. One copy for all callers.
static __attribute__((noinline)) void smooth_all(int64_t code, int64_t n, int64_t stride, real* y,
                                                 real* slope) {
    for (int64_t i = 0; i < n; i++) {
        V d;
        const V f = smooth_phi(code, load(y + i * stride), &d);
        store(y + i * stride, f);
        store(slope + i * stride, d);
    }
}
