/* Operators of a step in bfloat16 for which torch takes several passes, or one below the speed of memory.
 * Shapes and callers: __init__.py. Sums are float32, and what is stored is rounded to nearest even. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

typedef uint16_t bf16;

enum {
    LINES = 4,          /* rows of a weight read at once: as many sums that do not wait for each other */
    AHEAD = 8192,       /* bytes of a weight requested ahead of their use */
    CHUNK = 512,        /* positions attended at once, whatever the batch, so that it does not change a sum */
    SERIAL = 16384,     /* elements up to which a second thread costs more than it saves */
};
enum { SWIGLU = 0, GELU_TANH = 1 };

static inline float widen(bf16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline bf16 narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (bf16)(bits >> 16 | 0x40); /* NaN, which rounding could turn into infinity */
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e^x for x <= 0 to 2e-7, and 0 below e^-87, in a form that compilers vectorize: 2^n times a polynomial of what
 * is left of x. */
static inline float exp_negative(float x) {
    float clamped = x < -87 ? -87 : x, n = rintf(clamped * 1.44269504f);
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float e = 1.9875691e-4f;
    e = e * r + 1.3981999e-3f, e = e * r + 8.3334519e-3f, e = e * r + 4.1665796e-2f;
    e = e * r + 1.6666665e-1f, e = e * r + 0.5f, e = e * r * r + r + 1;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87 ? 0 : e * power;
}

static inline float dot(const bf16 *a, const bf16 *b, int64_t width) {
    float sum = 0;
    int64_t i = 0;
#ifdef __AVX512BF16__
    __m512 sums = _mm512_setzero_ps();
    for (; i + 32 <= width; i += 32)
        sums = _mm512_dpbf16_ps(sums, (__m512bh)_mm512_loadu_si512(a + i), (__m512bh)_mm512_loadu_si512(b + i));
    sum = _mm512_reduce_add_ps(sums);
#endif
    for (; i < width; i++) sum += widen(a[i]) * widen(b[i]);
    return sum;
}

/* ---- matrix times one vector ---- */

static inline void dots(float sums[LINES], const bf16 *const lines[LINES], const float *x, int64_t width) {
    float a = 0, b = 0, c = 0, d = 0;
    const bf16 *first = lines[0], *second = lines[1], *third = lines[2], *fourth = lines[3];
    for (int k = 0; k < LINES; k++)
        for (int64_t at = 0; at < width * 2; at += 64) __builtin_prefetch((const char *)lines[k] + AHEAD + at);
    for (int64_t i = 0; i < width; i++) {
        a += widen(first[i]) * x[i];
        b += widen(second[i]) * x[i];
        c += widen(third[i]) * x[i];
        d += widen(fourth[i]) * x[i];
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

static inline float biased(float sum, const bf16 *bias, int64_t at) { return bias ? sum + widen(bias[at]) : sum; }

void matvec(bf16 *y, const bf16 *x, const bf16 *weight, const bf16 *bias, int64_t out, int64_t width,
            int threads) {
    float wide[width];
    for (int64_t i = 0; i < width; i++) wide[i] = widen(x[i]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < out; o += LINES) {
        const bf16 *lines[LINES];
        float sums[LINES];
        for (int k = 0; k < LINES; k++) lines[k] = weight + (o + k < out ? o + k : out - 1) * width;
        dots(sums, lines, wide, width);
        for (int k = 0; k < LINES && o + k < out; k++) y[o + k] = narrow(biased(sums[k], bias, o + k));
    }
}

static inline float activate(float gate, int activation) {
    if (activation == SWIGLU) return gate / (1 + expf(-gate));
    return 0.5f * gate * (1 + tanhf(0.7978845608f * (gate + 0.044715f * gate * gate * gate)));
}

void matvec_gated(bf16 *y, const bf16 *x, const bf16 *weight, const bf16 *bias, int64_t out, int64_t width,
                  int activation, int threads) {
    float wide[width];
    for (int64_t i = 0; i < width; i++) wide[i] = widen(x[i]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < out; o += LINES / 2) {
        const bf16 *lines[LINES];
        float sums[LINES];
        for (int k = 0; k < LINES / 2; k++) {
            int64_t line = o + k < out ? o + k : out - 1;
            lines[k] = weight + line * width;
            lines[LINES / 2 + k] = weight + (out + line) * width;
        }
        dots(sums, lines, wide, width);
        for (int k = 0; k < LINES / 2 && o + k < out; k++) {
            float gate = biased(sums[k], bias, o + k), up = biased(sums[LINES / 2 + k], bias, out + o + k);
            y[o + k] = narrow(activate(gate, activation) * up);
        }
    }
}

/* ---- norm, rotation, cache ---- */

/* residual += x, unless x is NULL; y = residual / rms(residual) * weight */
void add_rms_norm(bf16 *y, float *residual, const bf16 *x, const bf16 *weight, int64_t rows, int64_t width,
                  float eps, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * width > SERIAL)
    for (int64_t row = 0; row < rows; row++) {
        float *sums = residual + row * width, squares = 0;
        if (x)
            for (int64_t i = 0; i < width; i++) sums[i] += widen(x[row * width + i]);
        for (int64_t i = 0; i < width; i++) squares += sums[i] * sums[i];
        float scale = 1 / sqrtf(squares / width + eps);
        for (int64_t i = 0; i < width; i++) y[row * width + i] = narrow(scale * widen(weight[i]) * sums[i]);
    }
}

/* The halves (a, b) of each head's first rot_dim entries become (a cos + b sin, b cos + a sin), the sine table
 * negated in its first half. */
void rotate(bf16 *heads, int64_t row_stride, const float *cosines, const float *sines, int64_t rows,
            int64_t num_heads, int64_t head_dim, int64_t rot_dim, int threads) {
    int64_t half = rot_dim / 2;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * num_heads * rot_dim > SERIAL)
    for (int64_t row = 0; row < rows; row++) {
        const float *c = cosines + row * rot_dim, *s = sines + row * rot_dim;
        for (int64_t head = 0; head < num_heads; head++) {
            bf16 *restrict first = heads + row * row_stride + head * head_dim, *restrict second = first + half;
            for (int64_t i = 0; i < half; i++) {
                float a = widen(first[i]), b = widen(second[i]);
                first[i] = narrow(a * c[i] + b * s[i]);
                second[i] = narrow(b * c[half + i] + a * s[half + i]);
            }
        }
    }
}

void store(bf16 *cache, const int64_t *slots, const bf16 *kv, int64_t row_stride, int64_t rows, int64_t width,
           int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * width > SERIAL)
    for (int64_t row = 0; row < rows; row++)
        memcpy(cache + slots[row] * width, kv + row * row_stride, width * sizeof(bf16));
}

/* ---- paged attention of one query a row ---- */

typedef struct {
    const bf16 *cache;     /* [num_slots, 2, num_kv_heads, head_dim] */
    const int32_t *tables; /* [rows, max_blocks] */
    const int32_t *lengths;
    const int64_t *queries; /* [rows], lines of q and out; NULL when they are all, in order */
    int64_t rows, max_blocks, block_size, window, num_heads, num_kv_heads, head_dim, max_chunks;
    float scale, softcap;
} Paged;

/* Scores of one query at `count` keys, and the largest. */
static inline __attribute__((always_inline)) float score(float *scores, const bf16 *const *keys, const bf16 *q,
                                                          const Paged *p, int64_t count, const int64_t dim) {
    float most = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        float sum = p->scale * dot(keys[i], q, dim);
        scores[i] = p->softcap ? p->softcap * tanhf(sum / p->softcap) : sum;
    }
    for (int64_t i = 0; i < count; i++) most = scores[i] > most ? scores[i] : most;
    return most;
}

/* acc += the weighted values of four positions at once, so that acc is read and written a quarter as often.
 * A function of its own: inlined, gcc 12 makes a loop out of it that is five times slower. */
static __attribute__((noinline)) void accumulate(float *restrict acc, const bf16 *const *keys, int64_t to_value,
                                                 const float *weights, int64_t dim) {
    const bf16 *a = keys[0] + to_value, *b = keys[1] + to_value;
    const bf16 *c = keys[2] + to_value, *d = keys[3] + to_value;
#pragma omp simd
    for (int64_t i = 0; i < dim; i++)
        acc[i] += weights[0] * widen(a[i]) + weights[1] * widen(b[i]) + weights[2] * widen(c[i]) +
                  weights[3] * widen(d[i]);
}

/* What the heads of one group see from `begin` to `end`: for each its largest score, the sum of exponentials
 * relative to it, and the values weighted with them. */
static inline __attribute__((always_inline)) void attend_chunk(
    float *partial, const bf16 *q, const Paged *p, const int32_t *table, int64_t kv_head, int64_t begin,
    int64_t end, const int64_t dim) {
    int64_t group = p->num_heads / p->num_kv_heads, count = end - begin;
    int64_t stride = 2 * p->num_kv_heads * dim;
    const bf16 *keys[CHUNK + 3];
    float scores[CHUNK + 3], acc[dim];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = begin + i, slot = (int64_t)table[at / p->block_size] * p->block_size + at % p->block_size;
        keys[i] = p->cache + slot * stride + kv_head * dim;
        for (int64_t d = 0; d < dim; d += 32) {
            __builtin_prefetch(keys[i] + d);
            __builtin_prefetch(keys[i] + p->num_kv_heads * dim + d);
        }
    }
    for (int64_t i = count; i < count + 3; i++) keys[i] = keys[0]; /* to a multiple of four, with weight 0 */
    for (int64_t head = 0; head < group; head++) {
        float most = score(scores, keys, q + head * dim, p, count, dim), sum = 0;
        for (int64_t i = 0; i < count; i++) scores[i] = exp_negative(scores[i] - most);
        for (int64_t i = 0; i < count; i++) sum += scores[i];
        for (int64_t d = 0; d < dim; d++) acc[d] = 0;
        for (int64_t i = count; i < count + 3; i++) scores[i] = 0;
        for (int64_t i = 0; i < count; i += 4) accumulate(acc, keys + i, p->num_kv_heads * dim, scores + i, dim);
        float *out = partial + head * p->max_chunks * (dim + 2);
        out[0] = most, out[1] = sum;
        memcpy(out + 2, acc, dim * sizeof(float));
    }
}

static void attend_item(float *partials, const bf16 *q, int64_t q_stride, const Paged *p, int64_t item) {
    int64_t kv_head = item % p->num_kv_heads, chunk = item / p->num_kv_heads % p->max_chunks;
    int64_t row = item / p->num_kv_heads / p->max_chunks, group = p->num_heads / p->num_kv_heads;
    int64_t length = p->lengths[row], first = p->window && length > p->window ? length - p->window : 0;
    int64_t begin = first + chunk * CHUNK, end = begin + CHUNK < length ? begin + CHUNK : length;
    if (begin >= length) return;
    const bf16 *mine = q + (p->queries ? p->queries[row] : row) * q_stride + kv_head * group * p->head_dim;
    int64_t line = (row * p->num_heads + kv_head * group) * p->max_chunks + chunk;
    float *partial = partials + line * (p->head_dim + 2);
    const int32_t *table = p->tables + row * p->max_blocks;
    /* The usual sizes as constants, which the compiler keeps in registers. */
    if (p->head_dim == 64)
        attend_chunk(partial, mine, p, table, kv_head, begin, end, 64);
    else if (p->head_dim == 128)
        attend_chunk(partial, mine, p, table, kv_head, begin, end, 128);
    else
        attend_chunk(partial, mine, p, table, kv_head, begin, end, p->head_dim);
}

static void combine(bf16 *out, const float *partials, const Paged *p, int64_t row, int64_t head) {
    int64_t length = p->lengths[row], seen = p->window && length > p->window ? p->window : length;
    int64_t chunks = (seen + CHUNK - 1) / CHUNK, dim = p->head_dim;
    const float *mine = partials + (row * p->num_heads + head) * p->max_chunks * (dim + 2);
    float most = -INFINITY, sum = 0, weights[chunks];
    for (int64_t c = 0; c < chunks; c++) most = mine[c * (dim + 2)] > most ? mine[c * (dim + 2)] : most;
    for (int64_t c = 0; c < chunks; c++) {
        weights[c] = chunks == 1 ? 1 : expf(mine[c * (dim + 2)] - most);
        sum += weights[c] * mine[c * (dim + 2) + 1];
    }
    bf16 *line = out + ((p->queries ? p->queries[row] : row) * p->num_heads + head) * dim;
    for (int64_t d = 0; d < dim; d++) {
        float value = 0;
        for (int64_t c = 0; c < chunks; c++) value += weights[c] * mine[c * (dim + 2) + 2 + d];
        line[d] = narrow(value / sum);
    }
}

/* partials: [rows, num_heads, max_chunks, head_dim + 2] float32 of scratch. */
void attend(bf16 *out, const bf16 *q, int64_t q_stride, const bf16 *cache, float *partials, const Paged *plan,
            float scale, float softcap, int threads) {
    Paged paged = *plan, *p = &paged;
    p->cache = cache, p->scale = scale, p->softcap = softcap;
    /* Rows enough: a thread takes all heads of one, whose keys lie side by side. */
    int64_t together = p->rows * p->max_chunks >= 2 * threads ? p->num_kv_heads : 1;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, together)
        for (int64_t item = 0; item < p->rows * p->num_kv_heads * p->max_chunks; item++)
            attend_item(partials, q, q_stride, p, item);
#pragma omp for schedule(static)
        for (int64_t item = 0; item < p->rows * p->num_heads; item++)
            combine(out, partials, p, item / p->num_heads, item % p->num_heads);
    }
}

/* ---- the draw ---- */

enum { BLOCK = 256 }; /* tokens whose probabilities are added before the blocks are */

/* A uniform in [0, 1) of 53 bits, as kernels/reference/sampling/philox.py defines it. */
static double uniform(uint64_t seed, uint32_t position, uint32_t choice) {
    uint32_t word[4] = {position, choice, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53 * word[0], second = (uint64_t)0xCD9E8D57 * word[2];
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ word[1] ^ key[0], (uint32_t)second,
                            (uint32_t)(first >> 32) ^ word[3] ^ key[1], (uint32_t)first};
        memcpy(word, next, sizeof word);
        key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
    }
    return ((double)((uint64_t)(word[0] >> 5) << 26) + (word[1] >> 6)) / 9007199254740992.0;
}

/* The first index at which the cumulated weights exceed `target`, or their last step if rounding left none;
 * `target` becomes what is left of it there. */
static int64_t first_above(const float *weights, int64_t count, double *target) {
    double below = 0, sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(weights[i] > 0)) continue;
        below = sum, sum += weights[i], last = i;
        if (sum > *target) break;
    }
    *target -= below;
    return last;
}

static int64_t draw_row(const float *logits, int64_t vocab, float temperature, double at, float *weights) {
    int64_t blocks = (vocab + BLOCK - 1) / BLOCK;
    float most = -INFINITY, sums[blocks];
    double total = 0;
    bool usable = true;
    for (int64_t i = 0; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < vocab; i++) usable &= logits[i] == logits[i];
    if (!usable || most == INFINITY || most == -INFINITY) return -1;
    for (int64_t i = 0; i < vocab; i++) weights[i] = exp_negative((logits[i] - most) / temperature);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * BLOCK < vocab ? (b + 1) * BLOCK : vocab;
        sums[b] = 0;
        for (int64_t i = b * BLOCK; i < end; i++) sums[b] += weights[i];
        total += sums[b];
    }
    double target = at * total;
    int64_t block = first_above(sums, blocks, &target), start = block * BLOCK;
    return start + first_above(weights + start, vocab - start < BLOCK ? vocab - start : BLOCK, &target);
}

/* tokens [rows]; logits [rows, vocab] in bfloat16, or in float32 where `wide`; scratch [rows, 2, vocab]. */
void draw(int64_t *tokens, const void *logits, bool wide, float *scratch, const float *temperatures,
          const int64_t *seeds, const int64_t *choices, const int64_t *positions, int64_t rows, int64_t vocab,
          int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *narrow_row = (const bf16 *)logits + row * vocab;
        const float *line = (const float *)logits + row * vocab;
        float *weights = scratch + row * 2 * vocab, *copy = weights + vocab;
        if (!wide) {
            for (int64_t i = 0; i < vocab; i++) copy[i] = widen(narrow_row[i]);
            line = copy;
        }
        double at = uniform((uint64_t)seeds[row], (uint32_t)positions[row], (uint32_t)choices[row]);
        tokens[row] = draw_row(line, vocab, temperatures[row], at, weights);
    }
}
