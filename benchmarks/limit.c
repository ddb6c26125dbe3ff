/* The allocation step as fast as we can write it by hand: the anchor of the benchmarks, not part of the package.
 *
 * Totals of the expected allocations of both sides, A = U * (R V') and B = V * (U' R) with R = X / (UV), and
 * l = sum X log(UV) if asked for, in two ways of which the faster one counts: two half-passes (rows over CSR, columns
 * over CSC, nothing scattered), and one pass over CSR that scatters into the totals of the columns. Factors are padded
 * with zeros to whole vectors, and aligned; one vector of nonzeros is worked on at a time; factor rows are prefetched.
 * Compile with -DREAL=float or -DREAL=double, -Ofast -march=native. One thread.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#define LANES ((int)(64 / sizeof(REAL)))
#define AHEAD 16
typedef REAL vec __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) vec sums(vec *a) { /* lane q: the sum over a[q] */
#define HALVE(n)                                                                                                       \
    for (int q = 0; q < (n); q++) {                                                                                    \
        vec even, odd, x = a[2 * q], y = a[2 * q + 1];                                                                 \
        even = SHUFFLE_EVEN(x, y), odd = SHUFFLE_ODD(x, y);                                                            \
        a[q] = even + odd;                                                                                             \
    }
#if FLOAT
#define SHUFFLE_EVEN(x, y)                                                                                             \
    __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define SHUFFLE_ODD(x, y) __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
    HALVE(8)
#else
#define SHUFFLE_EVEN(x, y) __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14)
#define SHUFFLE_ODD(x, y) __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15)
#endif
    HALVE(4)
    HALVE(2)
    HALVE(1)
    return a[0];
}

/* Natural logarithm, coefficients of fdlibm: a call of libmvec inside the loop would cost a third of the step. */
#if FLOAT
typedef int whole __attribute__((vector_size(64)));
#define DIGITS 23
#define ROOT_HALF 0x3F3504F3
static const REAL LOG[] = {0.66666662693f, 0.40000972152f, 0.28498786688f, 0.24279078841f};
#else
typedef long long whole __attribute__((vector_size(64)));
#define DIGITS 52
#define ROOT_HALF 0x3FE6A09E00000000LL
static const REAL LOG[] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                           2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                           1.479819860511658591e-01};
#endif

static inline __attribute__((always_inline)) vec logarithm(vec x) {
    const int terms = (int)(sizeof LOG / sizeof LOG[0]);
    whole bits = (whole)x, exponent = (bits - ROOT_HALF) >> DIGITS;
    vec mantissa = (vec)(bits - (exponent << DIGITS));
    vec f = mantissa - 1, s = f / (mantissa + 1), z = s * s, series = (vec){0} + LOG[terms - 1];
    for (int t = terms - 2; t >= 0; t--) series = series * z + LOG[t];
    return __builtin_convertvector(exponent, vec) * (REAL)0.6931471805599453 + (f - s * (f - series * z));
}

/* One half-pass for a fixed number of vectors NV; scatter and log are constants where it is inlined. */
static inline __attribute__((always_inline)) double pass(const int NV, const int scatter, const int take_log, int rows,
                                                         const int *indptr, const int *indices, const REAL *values,
                                                         const vec *U, const vec *V, vec *A, vec *R) {
    double loglik = 0;
    for (int i = 0; i < rows; i++) {
        vec u[8], kept[8], sum_log = {0};
        for (int v = 0; v < NV; v++) u[v] = U[(size_t)i * NV + v], kept[v] = (vec){0};
        for (int p = indptr[i]; p < indptr[i + 1]; p += LANES) {
            const int left = indptr[i + 1] - p, cells = left < LANES ? left : LANES;
            const vec *row[LANES];
            vec dot[LANES], x = {0}, mean, ratio;
            for (int q = 0; q < LANES; q++) {
                const int at = q < cells ? p + q : p;
                row[q] = V + (size_t)indices[at] * NV;
                __builtin_prefetch(V + (size_t)indices[at + AHEAD] * NV); /* indices are padded by AHEAD */
                if (scatter) __builtin_prefetch(R + (size_t)indices[at + AHEAD] * NV, 1);
                dot[q] = u[0] * row[q][0];
                for (int v = 1; v < NV; v++) dot[q] += u[v] * row[q][v];
            }
            mean = sums(dot);
            if (cells == LANES)
                memcpy(&x, values + p, sizeof x);
            else
                for (int q = 0; q < cells; q++) x[q] = values[p + q];
            ratio = x / mean;
            if (take_log) sum_log += x * logarithm(mean);
            for (int q = 0; q < LANES; q++)
                for (int v = 0; v < NV; v++) kept[v] += ratio[q] * row[q][v];
            if (scatter)
                for (int q = 0; q < cells; q++)
                    for (int v = 0; v < NV; v++) R[row[q] - V + v] += ratio[q] * u[v];
        }
        for (int v = 0; v < NV; v++) A[(size_t)i * NV + v] = u[v] * kept[v];
        for (int q = 0; q < LANES; q++) loglik += sum_log[q];
    }
    return loglik;
}

#define VECTORS(NV)                                                                                                    \
    case NV:                                                                                                           \
        if (scatter) return take_log ? pass(NV, 1, 1, ARGS) : pass(NV, 1, 0, ARGS);                                    \
        return take_log ? pass(NV, 0, 1, ARGS) : pass(NV, 0, 0, ARGS);
#define ARGS rows, indptr, indices, values, (const vec *)U, (const vec *)V, (vec *)A, (vec *)R

double limit_pass(int vectors, int scatter, int take_log, int rows, const int *indptr, const int *indices,
                  const REAL *values, const REAL *U, const REAL *V, REAL *A, REAL *R) {
    switch (vectors) {
        VECTORS(1)
        VECTORS(2)
        VECTORS(3)
        VECTORS(4)
        VECTORS(5)
        VECTORS(6)
        VECTORS(7)
        VECTORS(8)
    }
    return NAN;
}
