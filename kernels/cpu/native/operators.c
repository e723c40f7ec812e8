/* Operators of a step in bfloat16 for which torch takes several passes, or one below the speed of memory.
 * Shapes and callers: __init__.py. Sums are float32, and what is stored is rounded to nearest even. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* e^x for x <= 0 to 2e-7, in a form that compilers vectorize: 2^n times a polynomial of what is left of x. */
static inline float exp_negative(float x) {
    float clamped = x < -87 ? -87 : x, n = rintf(clamped * 1.44269504f);
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float e = 1.9875691e-4f;
    e = e * r + 1.3981999e-3f, e = e * r + 8.3334519e-3f, e = e * r + 4.1665796e-2f;
    e = e * r + 1.6666665e-1f, e = e * r + 0.5f, e = e * r * r + r + 1;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return e * power;
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

void matvec(bf16 *y, const bf16 *x, const bf16 *weight, const bf16 *bias, int64_t out, int64_t width, int threads) {
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
            bf16 *x = heads + row * row_stride + head * head_dim;
            for (int64_t i = 0; i < half; i++) {
                float a = widen(x[i]), b = widen(x[half + i]);
                x[i] = narrow(a * c[i] + b * s[i]);
                x[half + i] = narrow(b * c[half + i] + a * s[half + i]);
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

/* What the heads of one group see from `begin` to `end`: for each its largest score, the sum of exponentials
 * relative to it, and the values weighted with them. */
static inline __attribute__((always_inline)) void attend_chunk(
    float *partial, const float *q, const Paged *p, const int32_t *table, int64_t kv_head, int64_t begin,
    int64_t end, const int64_t dim) {
    int64_t group = p->num_heads / p->num_kv_heads, count = end - begin;
    int64_t stride = 2 * p->num_kv_heads * dim;
    const bf16 *keys[CHUNK];
    float scores[CHUNK];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = begin + i, slot = (int64_t)table[at / p->block_size] * p->block_size + at % p->block_size;
        keys[i] = p->cache + slot * stride + kv_head * dim;
    }
    for (int64_t head = 0; head < group; head++) {
        float *out = partial + head * p->max_chunks * (dim + 2), *acc = out + 2;
        float most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < count; i++) {
            float score = 0;
            for (int64_t d = 0; d < dim; d++) score += widen(keys[i][d]) * q[head * dim + d];
            scores[i] = p->softcap ? p->softcap * tanhf(score / p->softcap) : score;
        }
        for (int64_t i = 0; i < count; i++) most = scores[i] > most ? scores[i] : most;
        for (int64_t i = 0; i < count; i++) scores[i] = exp_negative(scores[i] - most);
        for (int64_t i = 0; i < count; i++) sum += scores[i];
        for (int64_t d = 0; d < dim; d++) acc[d] = 0;
        for (int64_t i = 0; i < count; i++) {
            const bf16 *value = keys[i] + p->num_kv_heads * dim;
            for (int64_t d = 0; d < dim; d++) acc[d] += scores[i] * widen(value[d]);
        }
        out[0] = most, out[1] = sum;
    }
}

static void attend_item(float *partials, const bf16 *q, int64_t q_stride, const Paged *p, int64_t item) {
    int64_t chunk = item % p->max_chunks, kv_head = item / p->max_chunks % p->num_kv_heads;
    int64_t row = item / p->max_chunks / p->num_kv_heads, group = p->num_heads / p->num_kv_heads;
    int64_t length = p->lengths[row], first = p->window && length > p->window ? length - p->window : 0;
    int64_t begin = first + chunk * CHUNK, end = begin + CHUNK < length ? begin + CHUNK : length;
    if (begin >= length) return;
    float wide[group * p->head_dim];
    const bf16 *mine = q + (p->queries ? p->queries[row] : row) * q_stride + kv_head * group * p->head_dim;
    for (int64_t i = 0; i < group * p->head_dim; i++) wide[i] = widen(mine[i]) * p->scale;
    float *partial = partials + ((row * p->num_heads + kv_head * group) * p->max_chunks + chunk) * (p->head_dim + 2);
    const int32_t *table = p->tables + row * p->max_blocks;
    /* The usual sizes as constants, which the compiler keeps in registers. */
    if (p->head_dim == 64)
        attend_chunk(partial, wide, p, table, kv_head, begin, end, 64);
    else if (p->head_dim == 128)
        attend_chunk(partial, wide, p, table, kv_head, begin, end, 128);
    else
        attend_chunk(partial, wide, p, table, kv_head, begin, end, p->head_dim);
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
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < p->rows * p->num_kv_heads * p->max_chunks; item++)
            attend_item(partials, q, q_stride, p, item);
#pragma omp for schedule(static)
        for (int64_t item = 0; item < p->rows * p->num_heads; item++)
            combine(out, partials, p, item / p->num_heads, item % p->num_heads);
    }
}
