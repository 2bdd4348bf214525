/* Paged attention for decode rows on a CPU: one query token per sequence, float32.
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
#define MAX_QUERIES 4
#define INLINE static inline __attribute__((always_inline))

/* One block of floats; the compiler splits it where the machine's registers are narrower. */
typedef float vec __attribute__((vector_size(4 * BLOCK), aligned(4)));

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
    for (int d = 0; d < dim; d += 2 * BLOCK) {
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
}

struct keys_of {
    const float *keys, *values;
    const int32_t *blocks;
    int64_t block_floats;
    int first, length;
};

/* `n` query heads that share one key/value head; `scores` holds n x `stride` floats. */
INLINE void queries(const float *q, struct keys_of at, int n, int dim, float scale, float *scores,
                    int stride, float *out) {
    int first_block = at.first / BLOCK, num_blocks = (at.length + BLOCK - 1) / BLOCK;
    for (int b = first_block; b < num_blocks; b++) {
        vec found[MAX_QUERIES];
        score_block(q, at.keys + at.blocks[b] * at.block_floats, n, dim, found);
        for (int i = 0; i < n; i++)
            *(vec *)(scores + i * stride + (b - first_block) * BLOCK) = found[i] * scale;
    }
    int offset = first_block * BLOCK, start = at.first - offset, end = at.length - offset;
    int padded = (num_blocks - first_block) * BLOCK;
    for (int i = 0; i < n; i++) {
        float *row = scores + i * stride, highest = -3e38f, total = 0.0f;
        for (int t = 0; t < start; t++)
            row[t] = -3e38f;
        for (int t = end; t < padded; t++)
            row[t] = -3e38f;
        for (int t = 0; t < padded; t++)
            highest = row[t] > highest ? row[t] : highest;
        for (int t = 0; t < padded; t++) {
            row[t] = exp_negative(row[t] - highest);
            total += row[t];
        }
        float inverse = 1.0f / total;
        for (int t = 0; t < padded; t++)
            row[t] *= inverse;
    }
    memset(out, 0, sizeof(float) * n * dim);
    for (int b = first_block; b < num_blocks; b++) {
        int left = at.length - b * BLOCK, used = left < BLOCK ? left : BLOCK;
        add_block(scores + (b - first_block) * BLOCK, stride,
                  at.values + at.blocks[b] * at.block_floats, used, n, dim, out);
    }
}

/* The compiler makes one version for each usual shape, with everything in registers. */
static void group_of(const float *q, struct keys_of at, int n, int dim, float scale,
                     float *scores, int stride, float *out) {
    if (n == 4 && dim == 128) queries(q, at, 4, 128, scale, scores, stride, out);
    else if (n == 4 && dim == 64) queries(q, at, 4, 64, scale, scores, stride, out);
    else if (n == 2 && dim == 128) queries(q, at, 2, 128, scale, scores, stride, out);
    else if (n == 2 && dim == 64) queries(q, at, 2, 64, scale, scores, stride, out);
    else if (n == 4) queries(q, at, 4, dim, scale, scores, stride, out);
    else if (n == 2) queries(q, at, 2, dim, scale, scores, stride, out);
    else queries(q, at, 1, dim, scale, scores, stride, out);
}

/* q and out [rows][heads][dim]; table [rows][table_width]; lengths in tokens, the new one included.
 * `dim` is a multiple of 32; `window` tokens are looked back at, 0 for all. Returns 0, or 1 if there is no memory. */
int paged_decode(const float *q, const float *keys, const float *values, const int32_t *table,
                 const int32_t *lengths, float *out, int rows, int heads, int kv_heads, int dim,
                 int table_width, float scale, int window) {
    int stride = BLOCK * (table_width + 1);
    float *scores = aligned_alloc(64, sizeof(float) * MAX_QUERIES * stride);
    if (!scores)
        return 1;
    int group = heads / kv_heads;
    for (int row = 0; row < rows; row++) {
        int length = lengths[row];
        struct keys_of at = {keys, values, table + (int64_t)row * table_width,
                             (int64_t)kv_heads * BLOCK * dim,
                             window > 0 && length > window ? length - window : 0, length};
        for (int kv_head = 0; kv_head < kv_heads; kv_head++) {
            at.keys = keys + (int64_t)kv_head * BLOCK * dim;
            at.values = values + (int64_t)kv_head * BLOCK * dim;
            int done = 0;
            while (done < group) {
                int left = group - done, n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
                int64_t from = ((int64_t)row * heads + kv_head * group + done) * dim;
                group_of(q + from, at, n, dim, scale, scores, stride, out + from);
                done += n;
            }
        }
    }
    free(scores);
    return 0;
}
