/* The engine's hot loops on a CPU, in float32: products, attention over pages, norms, turns.
 *
 * Keys are stored [block][kv_head][dim][token], values [block][kv_head][token][dim]: both products
 * are then plain multiply-adds over contiguous memory that a compiler turns into full vectors.
 * Each row is computed alone and in one order, so a sequence's numbers do not depend on who else is
 * in the batch.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 16
/* So many queries share one read of a block: as many sums as the machine has registers for. */
#ifdef __AVX512F__
#define MAX_QUERIES 8
#else
#define MAX_QUERIES 4
#endif
#define INLINE static inline __attribute__((always_inline))

/* One block of floats; the compiler splits it where the machine's registers are narrower. */
typedef float vec __attribute__((vector_size(4 * BLOCK), aligned(4)));
/* What heads are a multiple of; the last pieces of one that is no multiple of two blocks. */
#define PART 8
typedef float part __attribute__((vector_size(4 * PART), aligned(4)));

/* exp(x) for x <= 0, to about one unit in the last place (Cephes' polynomial). */
static inline float exp_negative(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = __builtin_rintf(x * 1.44269504088896341f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t i; float f; } power = { ((int32_t)n + 127) << 23 };
    return p * power.f;
}

/* The scores of one block of keys for `n` queries: a product of [n, dim] with [dim, BLOCK].
 * Even and odd dims add up apart, so that no addition has to wait for the one before. */
INLINE void score_block(const float *q, const float *k, int n, int dim, vec *scores) {
    vec even[MAX_QUERIES] = {{0}}, odd[MAX_QUERIES] = {{0}};
    for (int d = 0; d < dim; d += 2) {
        vec first = *(const vec *)(k + d * BLOCK), second = *(const vec *)(k + (d + 1) * BLOCK);
        for (int i = 0; i < n; i++) {
            even[i] += q[i * dim + d] * first;
            odd[i] += q[i * dim + d + 1] * second;
        }
    }
    for (int i = 0; i < n; i++)
        scores[i] = even[i] + odd[i];
}

/* Adds one block of values, weighed, to `n` sums of `dim` floats. */
INLINE void add_block(const float *p, int stride, const float *v, int used, int n, int dim,
                      float *sums) {
    int d = 0;
    for (; d + 2 * BLOCK <= dim; d += 2 * BLOCK) {
        vec low[MAX_QUERIES], high[MAX_QUERIES];
        for (int i = 0; i < n; i++) {
            low[i] = *(vec *)(sums + i * dim + d);
            high[i] = *(vec *)(sums + i * dim + d + BLOCK);
        }
        for (int t = 0; t < used; t++) {
            vec first = *(const vec *)(v + t * dim + d);
            vec second = *(const vec *)(v + t * dim + d + BLOCK);
            for (int i = 0; i < n; i++) {
                low[i] += p[i * stride + t] * first;
                high[i] += p[i * stride + t] * second;
            }
        }
        for (int i = 0; i < n; i++) {
            *(vec *)(sums + i * dim + d) = low[i];
            *(vec *)(sums + i * dim + d + BLOCK) = high[i];
        }
    }
    for (; d < dim; d += PART)
        for (int i = 0; i < n; i++) {
            part sum = *(part *)(sums + i * dim + d);
            for (int t = 0; t < used; t++)
                sum += p[i * stride + t] * *(const part *)(v + t * dim + d);
            *(part *)(sums + i * dim + d) = sum;
        }
}

/* Where one key/value head of a sequence lies, and from which token to which it is looked at. */
struct span {
    const float *keys, *values;
    const int32_t *blocks;
    int64_t block_floats;
    int first, end;
};

/* Scores of `padded` tokens to weights that sum to one; only `start` … `end` are seen.
 * Sums go block by block, so that tokens which are not seen change nothing, not even a rounding. */
INLINE void soften(float *row, int start, int end, int padded) {
    float highest = -3e38f, total = 0.0f;
    for (int t = 0; t < start; t++)
        row[t] = -3e38f;
    for (int t = end; t < padded; t++)
        row[t] = -3e38f;
    for (int t = 0; t < padded; t++)
        highest = row[t] > highest ? row[t] : highest;
    vec sums = {0};
    for (int b = 0; b < padded; b += BLOCK) {
        for (int t = b; t < b + BLOCK; t++)
            row[t] = t < start || t >= end ? 0.0f : exp_negative(row[t] - highest);
        sums += *(vec *)(row + b);
    }
    for (int t = 0; t < BLOCK; t++)
        total += sums[t];
    float inverse = 1.0f / total;
    for (int t = 0; t < padded; t++)
        row[t] *= inverse;
}

/* `n` queries [n][dim] of one key/value head; query i sees the tokens firsts[i] … ends[i]. */
INLINE void queries(const float *q, struct span at, const int *firsts, const int *ends, int n,
                    int dim, float scale, float *scores, int stride, float *out) {
    int first_block = at.first / BLOCK, num_blocks = (at.end + BLOCK - 1) / BLOCK;
    int offset = first_block * BLOCK, padded = num_blocks * BLOCK - offset;
    for (int b = first_block; b < num_blocks; b++) {
        vec found[MAX_QUERIES];
        score_block(q, at.keys + at.blocks[b] * at.block_floats, n, dim, found);
        for (int i = 0; i < n; i++)
            *(vec *)(scores + i * stride + b * BLOCK - offset) = found[i] * scale;
    }
    for (int i = 0; i < n; i++)
        soften(scores + i * stride, firsts[i] - offset, ends[i] - offset, padded);
    memset(out, 0, sizeof(float) * n * dim);
    for (int b = first_block; b < num_blocks; b++) {
        int left = at.end - b * BLOCK, used = left < BLOCK ? left : BLOCK;
        add_block(scores + b * BLOCK - offset, stride,
                  at.values + at.blocks[b] * at.block_floats, used, n, dim, out);
    }
}

/* The compiler makes one version for each usual shape, with everything in registers. */
static void group_of(const float *q, struct span at, const int *firsts, const int *ends, int n,
                     int dim, float scale, float *scores, int stride, float *out) {
#define SHAPE(count, size) \
    if (n == count && (size == 0 || dim == size)) { \
        queries(q, at, firsts, ends, count, size ? size : dim, scale, scores, stride, out); \
        return; \
    }
#if MAX_QUERIES == 8
    SHAPE(8, 128) SHAPE(8, 64) SHAPE(8, 0)
#endif
    SHAPE(4, 128) SHAPE(4, 64) SHAPE(4, 0)
    SHAPE(2, 128) SHAPE(2, 64) SHAPE(2, 0)
    queries(q, at, firsts, ends, 1, dim, scale, scores, stride, out);
}

INLINE int first_seen(int end, int window) {
    return window > 0 && end > window ? end - window : 0;
}

INLINE int at_once(int left) {
    return left >= MAX_QUERIES ? MAX_QUERIES : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* One query per row. q and out [rows][heads][dim]; table [rows][table_width]; lengths in tokens,
 * the new one included. `dim` is a multiple of PART; `window` tokens are looked back at, 0 for all.
 * Returns 0, or 1 if there is no memory. */
int paged_decode(const float *q, const float *keys, const float *values, const int32_t *table,
                 const int32_t *lengths, float *out, int rows, int heads, int kv_heads, int dim,
                 int table_width, float scale, int window) {
    int stride = BLOCK * (table_width + 1);
    float *scores = aligned_alloc(64, sizeof(float) * MAX_QUERIES * stride);
    if (!scores)
        return 1;
    int group = heads / kv_heads;
    for (int row = 0; row < rows; row++) {
        int end = lengths[row], firsts[MAX_QUERIES], ends[MAX_QUERIES];
        struct span at = {keys, values, table + (int64_t)row * table_width,
                          (int64_t)kv_heads * BLOCK * dim, first_seen(end, window), end};
        for (int i = 0; i < MAX_QUERIES; i++) {
            firsts[i] = at.first;
            ends[i] = end;
        }
        for (int kv_head = 0; kv_head < kv_heads; kv_head++) {
            at.keys = keys + (int64_t)kv_head * BLOCK * dim;
            at.values = values + (int64_t)kv_head * BLOCK * dim;
            for (int done = 0, n; done < group; done += n) {
                n = at_once(group - done);
                int64_t from = ((int64_t)row * heads + kv_head * group + done) * dim;
                group_of(q + from, at, firsts, ends, n, dim, scale, scores, stride, out + from);
            }
        }
    }
    free(scores);
    return 0;
}

/* A chunk of one sequence: q and out [tokens][heads][dim] at positions `start` …, `blocks` those of
 * the sequence. Each query is computed as if it were alone, whatever chunk it comes in.
 * Returns 0, or 1 if there is no memory. */
int paged_prefill(const float *q, const float *keys, const float *values, const int32_t *blocks,
                  float *out, int tokens, int heads, int kv_heads, int dim, int start, float scale,
                  int window) {
    int stride = BLOCK * ((start + tokens) / BLOCK + 2), group = heads / kv_heads;
    float *scores = aligned_alloc(64, sizeof(float) * MAX_QUERIES * (stride + 2 * dim));
    if (!scores)
        return 1;
    float *tile = scores + MAX_QUERIES * stride, *answers = tile + MAX_QUERIES * dim;
    for (int kv_head = 0; kv_head < kv_heads; kv_head++) {
        struct span at = {keys + (int64_t)kv_head * BLOCK * dim,
                          values + (int64_t)kv_head * BLOCK * dim, blocks,
                          (int64_t)kv_heads * BLOCK * dim, 0, 0};
        for (int done = 0, n; done < tokens * group; done += n) {
            int firsts[MAX_QUERIES], ends[MAX_QUERIES];
            int64_t from[MAX_QUERIES];
            n = at_once(tokens * group - done);
            for (int i = 0; i < n; i++) {
                int token = (done + i) / group, head = kv_head * group + (done + i) % group;
                from[i] = ((int64_t)token * heads + head) * dim;
                ends[i] = start + token + 1;
                firsts[i] = first_seen(ends[i], window);
                memcpy(tile + i * dim, q + from[i], sizeof(float) * dim);
            }
            at.first = firsts[0];
            at.end = ends[n - 1];
            group_of(tile, at, firsts, ends, n, dim, scale, scores, stride, answers);
            for (int i = 0; i < n; i++)
                memcpy(out + from[i], answers + i * dim, sizeof(float) * dim);
        }
    }
    free(scores);
    return 0;
}

/* The sum of squares, in one order for every row: no rounding depends on what a compiler likes. */
INLINE float squares(const float *x, int dim) {
    vec sums = {0};
    float total = 0.0f;
    int d = 0;
    for (; d + BLOCK <= dim; d += BLOCK)
        sums += *(const vec *)(x + d) * *(const vec *)(x + d);
    for (int t = 0; t < BLOCK; t++)
        total += sums[t];
    for (; d < dim; d++)
        total += x[d] * x[d];
    return total;
}

/* Root-mean-square norm of `rows` rows of `dim` floats, times `weight`. */
void rms_norm(const float *x, const float *weight, float *out, int rows, int dim, float eps) {
    for (int row = 0; row < rows; row++, x += dim, out += dim) {
        float inverse = 1.0f / __builtin_sqrtf(squares(x, dim) / dim + eps);
        for (int d = 0; d < dim; d++)
            out[d] = x[d] * inverse * weight[d];
    }
}

/* silu(gate) * up for rows of [gate | up], `inner` floats each. */
void silu_times(const float *gate_up, float *out, int rows, int inner) {
    for (int row = 0; row < rows; row++, gate_up += 2 * inner, out += inner)
        for (int d = 0; d < inner; d++) {
            float g = gate_up[d], e = exp_negative(g < 0.0f ? g : -g);
            float sigmoid = (g < 0.0f ? e : 1.0f) / (1.0f + e);
            out[d] = g * sigmoid * gate_up[inner + d];
        }
}

/* One head: norm where `weight` is given, then turned by its position's angles. */
static void turn_head(const float *x, const float *weight, float eps, const float *cosine,
                      const float *sine, int dim, float *out) {
    float inverse = 1.0f;
    if (weight)
        inverse = 1.0f / __builtin_sqrtf(squares(x, dim) / dim + eps);
    int half = dim / 2;
    for (int d = 0; d < half; d++) {
        float a = x[d] * inverse, b = x[d + half] * inverse;
        if (weight) {
            a *= weight[d];
            b *= weight[d + half];
        }
        out[d] = a * cosine[d] - b * sine[d];
        out[d + half] = b * cosine[d + half] + a * sine[d + half];
    }
}

/* Rows of [queries | keys | values] as they come from one product: queries and keys are normed and
 * turned, keys and values go to their places in the pools, queries to `q_out`. */
void norm_turn_store(const float *qkv, const float *q_weight, const float *k_weight, float eps,
                     const float *cosine, const float *sine, const int64_t *blocks,
                     const int64_t *offsets, float *keys, float *values, float *q_out, int rows,
                     int heads, int kv_heads, int dim) {
    float turned[1024];
    for (int row = 0; row < rows; row++, cosine += dim, sine += dim) {
        for (int head = 0; head < heads; head++, qkv += dim, q_out += dim)
            turn_head(qkv, q_weight, eps, cosine, sine, dim, q_out);
        int64_t base = blocks[row] * kv_heads * BLOCK * dim;
        for (int head = 0; head < kv_heads; head++, qkv += dim) {
            turn_head(qkv, k_weight, eps, cosine, sine, dim, turned);
            float *k = keys + base + (int64_t)head * BLOCK * dim + offsets[row];
            for (int d = 0; d < dim; d++)
                k[d * BLOCK] = turned[d];
        }
        for (int head = 0; head < kv_heads; head++, qkv += dim)
            memcpy(values + base + ((int64_t)head * BLOCK + offsets[row]) * dim, qkv,
                   sizeof(float) * dim);
    }
}

/* The first place of each row's highest value. */
void argmax(const float *x, int64_t *out, int rows, int dim) {
    for (int row = 0; row < rows; row++, x += dim) {
        float highest = x[0];
        for (int d = 1; d < dim; d++)
            highest = x[d] > highest ? x[d] : highest;
        int at = 0;
        while (at < dim - 1 && x[at] != highest)
            at++;
        out[row] = at;
    }
}

/* Products with fixed weights. So many rows and columns of an answer stay in registers while their
 * sums grow; so deep a piece of the weights stays near for all rows of so many. */
#define PRODUCT_ROWS 14
#define PRODUCT_COLUMNS 32
#define PRODUCT_DEPTH 512
#define PRODUCT_MANY (7 * PRODUCT_ROWS)
#define PRODUCT_AHEAD (32 * PRODUCT_COLUMNS)

/* Whether the machine has the registers that the product is written for. */
#ifdef __AVX512F__
#define HAS_PRODUCT 1
#else
#define HAS_PRODUCT 0
#endif
int has_product(void) { return HAS_PRODUCT; }

/* `n` rows x [n][stride] times a panel [depth][PRODUCT_COLUMNS], added to what `from` holds.
 * Every sum goes from the first weight to the last: the same bits in whatever company. */
INLINE void product_tile(const float *x, int64_t stride, const float *panel, int depth, int n,
                         const float *from, int64_t from_stride, float *out, int64_t out_stride) {
    vec low[PRODUCT_ROWS], high[PRODUCT_ROWS];
    for (int i = 0; i < n; i++) {
        low[i] = from ? *(const vec *)(from + i * from_stride) : (vec){0};
        high[i] = from ? *(const vec *)(from + i * from_stride + BLOCK) : (vec){0};
    }
    for (int k = 0; k < depth; k++, panel += PRODUCT_COLUMNS) {
        vec first = *(const vec *)panel, second = *(const vec *)(panel + BLOCK);
        __builtin_prefetch(panel + PRODUCT_AHEAD);
        __builtin_prefetch(panel + PRODUCT_AHEAD + BLOCK);
        for (int i = 0; i < n; i++) {
            low[i] += x[i * stride + k] * first;
            high[i] += x[i * stride + k] * second;
        }
    }
    for (int i = 0; i < n; i++) {
        *(vec *)(out + i * out_stride) = low[i];
        *(vec *)(out + i * out_stride + BLOCK) = high[i];
    }
}

/* One version for each number of rows, with all sums in registers. To fit them into fewer than they
 * are written for takes a compiler ten seconds, and nobody asks for them there: one for all. */
static void product_rows(const float *x, int64_t stride, const float *panel, int depth, int n,
                         const float *from, int64_t from_stride, float *out, int64_t out_stride) {
#define ROWS(count) \
    case count: \
        product_tile(x, stride, panel, depth, count, from, from_stride, out, out_stride); \
        return;
    switch (HAS_PRODUCT ? n : 0) {
        ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7)
        ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
    }
    product_tile(x, stride, panel, depth, n, from, from_stride, out, out_stride);
}

/* x [rows][depth] times weights [columns / 32][depth][32], plus `bias` where given. */
void product(const float *x, const float *weights, const float *bias, float *out, int rows,
             int depth, int columns) {
    for (int top = 0; top < rows; top += PRODUCT_MANY) {
        int many = rows - top < PRODUCT_MANY ? rows - top : PRODUCT_MANY;
        int parts = (many + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
        for (int column = 0; column < columns; column += PRODUCT_COLUMNS)
            for (int k = 0; k < depth; k += PRODUCT_DEPTH) {
                int deep = depth - k < PRODUCT_DEPTH ? depth - k : PRODUCT_DEPTH;
                const float *panel = weights + (int64_t)column * depth + k * PRODUCT_COLUMNS;
                for (int part = 0, row = top; part < parts; part++) {
                    int n = (top + many - row + parts - part - 1) / (parts - part);
                    float *to = out + (int64_t)row * columns + column;
                    const float *from = k ? to : bias ? bias + column : 0;
                    product_rows(x + (int64_t)row * depth + k, depth, panel, deep, n, from,
                                 k ? columns : 0, to, columns);
                    row += n;
                }
            }
    }
}
