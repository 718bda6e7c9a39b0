// Multiply-adds that need no memory: what the processor can do at most in float32.
#include <stdint.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { CHAINS = 12 };  // enough to hide the latency of one, few enough for the registers

typedef float vector __attribute__((vector_size(4 * LANES)));

int64_t roann_peak_operations(void) { return 2 * CHAINS * LANES; }

float roann_peak(int64_t rounds) {
    vector chain[CHAINS], factor, term, sum = {0};
    float found = 0;
    for (int i = 0; i < LANES; i++) {
        factor[i] = 0.5f, term[i] = (float)i;
        for (int c = 0; c < CHAINS; c++) chain[c][i] = (float)c;  // equal ones would be done once
    }
    for (int64_t k = 0; k < rounds; k++)
        for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * factor + term;
    for (int c = 0; c < CHAINS; c++) sum += chain[c];
    for (int i = 0; i < LANES; i++) found += sum[i];
    return found;
}
