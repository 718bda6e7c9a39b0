// The sweeps of a scan on a CPU, as plain C++17 behind a C ABI: no torch or BLAS, and of OpenMP only
// the threads that the process has already.
//
// The same source is compiled for three ISAs and two dtypes; the caller says which to run. The
// batch is split over threads once per call, and each thread scans its rows through all steps.

#include <atomic>
#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if __has_include(<dlfcn.h>) && __has_include(<pthread.h>)
#include <dlfcn.h>
#include <pthread.h>
#endif
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own AVX-512 header reads variables it leaves undefined on purpose (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

#include "native_outer.h"
#include "native_problem.h"
#include "native_step.h"

#define INLINE static inline __attribute__((always_inline))
// A table of F<1, W> … F<TILE_ROWS, W>.
#define TILES(F, W) {F<1, W>, F<2, W>, F<3, W>, F<4, W>, F<5, W>, F<6, W> MORE_TILES(F, W)}
#define EXPORT extern "C" __attribute__((visibility("default")))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

namespace {

const double LARGE_ALPHA = 0.9375;  // of problem.py

struct Build {
    int64_t lanes;
    bool (*shares_panels)(const Args&);
    int64_t (*packed_bytes)(const Args&);
    void (*pack_shared)(const Args&);
    int64_t (*unit)(const Args&);
    int64_t (*work_bytes)(const Args&, int64_t from, int64_t to);
    void (*run)(const Args&, int64_t from, int64_t to, char* work);
    void (*step)(const Step&);
    void (*step_adjoint)(const StepAdjoint&);
    int64_t (*outer_work_bytes)(const Outer&);
    int64_t (*outer_sum_bytes)(const Outer&);
    int64_t (*outer_groups)(const Outer&);
    void (*sum_rows)(const Outer&, int64_t group, int64_t from, int64_t to, void* sums,
                     char* work);
    void (*add_part)(const Outer&, const void* sums);
};

#define ROANN_LEVEL 0
#define VECTOR_BYTES 16
#define TILE_ROWS 6
#define MORE_TILES(F, W)
namespace baseline32 {
#define real float
#define integer int32_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace baseline32
namespace baseline64 {
#define real double
#define integer int64_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace baseline64
#undef ROANN_LEVEL
#undef VECTOR_BYTES

#if defined(__x86_64__)
#define ROANN_LEVEL 1
#define VECTOR_BYTES 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2_32 {
#define real float
#define integer int32_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace avx2_32
namespace avx2_64 {
#define real double
#define integer int64_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace avx2_64
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ROANN_LEVEL
#undef VECTOR_BYTES
#undef TILE_ROWS
#undef MORE_TILES

#define ROANN_LEVEL 2
#define VECTOR_BYTES 64
#define TILE_ROWS 12
#define MORE_TILES(F, W) , F<7, W>, F<8, W>, F<9, W>, F<10, W>, F<11, W>, F<12, W>
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prfchw"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prfchw")
#endif
namespace avx512_32 {
#define real float
#define integer int32_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace avx512_32
namespace avx512_64 {
#define real double
#define integer int64_t
#include "native_isa.inl"
#undef real
#undef integer
}  // namespace avx512_64
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const Build& build(int64_t isa, int64_t dtype) {
#if defined(__x86_64__)
    static const Build* const BUILDS[3][2] = {{&baseline32::BUILD, &baseline64::BUILD},
                                              {&avx2_32::BUILD, &avx2_64::BUILD},
                                              {&avx512_32::BUILD, &avx512_64::BUILD}};
#else
    static const Build* const BUILDS[1][2] = {{&baseline32::BUILD, &baseline64::BUILD}};
#endif
    return *BUILDS[isa][dtype];
}

char* aligned(int64_t bytes) {
    return (char*)std::aligned_alloc(64, size_t(bytes + 63) / 64 * 64 + 64);
}

// The jobs of one call, and what has not been started of them. Whoever is free takes the next one.
struct Jobs {
    void (*run)(const void* job, int64_t i, char* room);
    const void* job;
    const std::vector<char*>& work;
    std::fenv_t environment;  // the caller's treatment of denormals holds in every thread
    std::atomic<int64_t> next{0};
};

void take(void* shared) {
    Jobs& jobs = *(Jobs*)shared;
    std::fenv_t own;
    std::fegetenv(&own);
    std::fesetenv(&jobs.environment);
    for (size_t i; (i = size_t(jobs.next++)) < jobs.work.size();)
        jobs.run(jobs.job, int64_t(i), jobs.work[i]);
    std::fesetenv(&own);
}

// The start of a parallel region in the OpenMP that torch has loaded; null where there is none.
//
// Torch's threads stay awake for a while after each of its operations. Threads of our own would
// compete with them for the processors; these are the same ones. A forked child must not use them.
typedef void (*Region)(void (*)(void*), void*, unsigned threads, unsigned flags);

Region region_of_process() {
#ifdef RTLD_DEFAULT
    static std::atomic<bool> forked(false);
    static const int watching = pthread_atfork(nullptr, nullptr, [] { forked = true; });
    static const Region region = (Region)dlsym(RTLD_DEFAULT, "GOMP_parallel");
    return watching || forked ? nullptr : region;
#else
    return nullptr;
#endif
}

// Runs job(i, its workspace), one for each size of a workspace, on as many threads, or on fewer if
// there are no more to be had. False if memory ran out.
template <class Job>
bool on_threads(int64_t threads, const std::vector<int64_t>& work_bytes, const Job& job) {
    std::vector<char*> work;
    bool failed = false;
    for (int64_t bytes : work_bytes) {
        work.push_back(aligned(bytes));
        failed = failed || !work.back();
    }
    Jobs jobs{[](const void* job, int64_t i, char* room) { (*(const Job*)job)(i, room); }, &job, work};
    std::fegetenv(&jobs.environment);
    const Region region = failed || work.size() < 2 ? nullptr : region_of_process();
    // Of all of them, as torch does: OpenMP ends the threads that a smaller region leaves out.
    if (region) region(take, &jobs, unsigned(threads), 0);
    std::vector<std::thread> own;
    try {
        for (size_t i = 1; i < work.size() && !failed && !region; i++)
            own.emplace_back(take, &jobs);
    } catch (const std::system_error&) {  // no more threads to be had: their share is done below
    }
    if (!failed) take(&jobs);
    for (std::thread& t : own) t.join();
    for (char* w : work) std::free(w);
    return !failed;
}

// A thread is worth starting for some tens of microseconds of work, and for rows that fill a tile.
int64_t parts_for(const Args& p, const Build& k) {
    const double work = double(p.end - p.begin) * p.B * p.N * (2.0 * p.N + p.I + 40);
    const int64_t least = p.layout == NARROW ? k.lanes : 4;
    int64_t parts = p.threads;
    if (parts > (p.B + least - 1) / least) parts = (p.B + least - 1) / least;
    if (work < 3e6 * double(parts)) parts = int64_t(work / 3e6);
    return parts < 1 ? 1 : parts;
}

// How many of this call's steps each unit of rows moves in.
std::vector<int64_t> moves(const Args& p, int64_t unit) {
    std::vector<int64_t> counts;
    int64_t t = p.end;
    for (int64_t row = 0; row < p.B; row += unit) {
        while (t > p.begin && p.starts[t] - p.starts[t - 1] <= row) t--;
        counts.push_back(t - p.begin);
    }
    return counts;
}

// Where each thread's rows begin, if none may cost more than `most`; where the last one ends is
// short of B if they do not suffice. A step costs as much as STEP rows, whatever the number of rows.
std::vector<int64_t> filled(const std::vector<int64_t>& counts, int64_t parts, int64_t most) {
    const int64_t STEP = 4;
    std::vector<int64_t> bounds(1, 0);
    size_t i = 0;
    for (int64_t part = 0; part < parts; part++) {
        int64_t cost = i < counts.size() ? STEP * counts[i] : 0;
        while (i < counts.size() && cost + counts[i] <= most) cost += counts[i++];
        bounds.push_back(int64_t(i));
    }
    return bounds;
}

// The rows of each thread, part i from bounds[i] to bounds[i + 1]: blocks, so that no two threads
// write to one cache line more than once a step. Where sequences end early, later blocks are larger.
std::vector<int64_t> share_out(const Args& p, int64_t unit, int64_t parts) {
    const int64_t units = (p.B + unit - 1) / unit;
    std::vector<int64_t> bounds;
    if (p.starts && parts > 1) {
        const std::vector<int64_t> counts = moves(p, unit);
        int64_t low = 0, high = 1;  // the least cost that suffices lies between
        while (filled(counts, parts, high).back() < units) high *= 2;
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (filled(counts, parts, middle).back() < units ? low : high) = middle;
        }
        bounds = filled(counts, parts, high);
    } else {
        for (int64_t i = 0; i <= parts; i++) bounds.push_back(units * i / parts);
    }
    for (int64_t& bound : bounds) bound = bound * unit < p.B ? bound * unit : p.B;
    return bounds;
}

// Whether every place is one of N: they are read as addresses.
bool within(const void* places, int64_t count, int64_t N) {
    const int64_t* at = (const int64_t*)places;
    for (int64_t i = 0; i < count; i++)
        if (at[i] < 0 || at[i] >= N) return false;
    return true;
}

bool places_fit(const Args& p) {
    const int64_t count = p.O_step ? p.T * p.N : p.N;
    if (p.filter == GATHER) return within(p.O0, count, p.N) && within(p.O1, count, p.N);
    return p.filter != ROTATION || within(p.O2, count, p.N);
}

}  // namespace

// The best ISA of this processor: 0 baseline, 1 AVX2 with FMA, 2 AVX-512.
EXPORT int64_t roann_isa() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

// Lanes of a vector, which decide the layout and the shape of the slopes.
EXPORT int64_t roann_lanes(int64_t isa, int64_t dtype) { return build(isa, dtype).lanes; }

// What the caller must find equal to the size of its own struct, and to the length of its tables.
EXPORT int64_t roann_args_size() { return sizeof(Args); }
EXPORT int64_t roann_filters() { return PLANES + 1; }
EXPORT int64_t roann_phis() { return SOFTPLUS + 1; }

EXPORT void roann_free(Args* p) {
    std::free(p->packed);
    p->packed = nullptr;
}

// Steps begin … end − 1 of a sweep. Returns 0, 1 if memory ran out, or 2 if the filter names a place
// that is not there. The packed weights stay with `p` until `roann_free`, which is called here after
// the last steps and after a failure.
EXPORT int64_t roann_run(Args* p) {
    if (!places_fit(*p)) return 2;
    const Build& k = build(p->isa, p->dtype);
    if (k.shares_panels(*p) && !p->packed) {
        p->packed = aligned(k.packed_bytes(*p));
        if (!p->packed) return 1;
        k.pack_shared(*p);
    }
    const int64_t parts = parts_for(*p, k);
    const std::vector<int64_t> bounds = share_out(*p, k.unit(*p), parts);
    std::vector<int64_t> work;
    for (int64_t i = 0; i < parts; i++) work.push_back(k.work_bytes(*p, bounds[i], bounds[i + 1]));
    const bool done = on_threads(p->threads, work, [&](int64_t i, char* room) {
        k.run(*p, bounds[i], bounds[i + 1], room);
    });
    if (!done || (p->op == FORWARD ? p->end == p->T : p->begin == 0)) roann_free(p);
    return !done;
}

namespace {

// From the sizes alone: neither the number of threads nor what else they do changes a sum.
int64_t parts_of(const Outer& p, int64_t groups) {
    const int64_t most = groups < JOBS ? JOBS / groups : 1, parts = p.rows / (512 * groups);
    return parts < 1 ? 1 : parts > most ? most : parts;
}

}  // namespace

// What the caller must find equal to the size of its own struct, and the room `sums` needs.
EXPORT int64_t roann_outer_size() { return sizeof(Outer); }
EXPORT int64_t roann_outer_bytes(const Outer* p) {
    const Build& k = build(p->isa, p->dtype);
    return parts_of(*p, k.outer_groups(*p)) * k.outer_sum_bytes(*p);
}

// Returns 0, or 1 if memory ran out: then nothing was added.
EXPORT int64_t roann_outer(const Outer* p) {
    const Build& k = build(p->isa, p->dtype);
    const int64_t groups = k.outer_groups(*p), parts = parts_of(*p, groups), jobs = parts * groups;
    const int64_t size = k.outer_sum_bytes(*p);
    std::atomic<int64_t> next(0);  // a thread that is held up leaves jobs to the others
    const std::vector<int64_t> work(size_t(p->threads < jobs ? p->threads : jobs),
                                    k.outer_work_bytes(*p));
    const bool done = on_threads(p->threads, work, [&](int64_t, char* room) {
        for (int64_t job; (job = next++) < jobs;) {
            const int64_t i = job / groups;
            k.sum_rows(*p, job % groups, p->rows * i / parts, p->rows * (i + 1) / parts,
                       (char*)p->sums + i * size, room);
        }
    });
    for (int64_t i = 0; i < parts && done; i++) k.add_part(*p, (char*)p->sums + i * size);
    return !done;
}

// Python looks for an entry point by this name in anything built as an extension module; what is
// here is reached through ctypes instead.
EXPORT void* PyInit__native() { return nullptr; }

#include "native_call.inl"
