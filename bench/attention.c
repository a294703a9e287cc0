/* Causal attention beside full attention, forward and backward, in turn:
 *
 *     build/bench/attention [tokens [rounds [instruction set]]]
 *
 * One sample of 8 heads of 32 columns, as a language model of width 256 has them, in float32 and in bfloat16. With a
 * causal mask half of the scores, and half of the work, are left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/half.h"
#include "base/clock.h"
#include "base/median.h"
#include "config/config.h"

enum { HEADS = 8, HEAD_DIM = 32, WIDTH = HEADS * HEAD_DIM, MOST_ROUNDS = 99, MATRICES = 8 };

/* A number given in the command line. */
static int number_of(int count, char **words, int index, int most, int otherwise)
{
    const int number = count > index ? atoi(words[index]) : otherwise;
    if (number > 0 && number <= most) return number;
    fprintf(stderr, "bench/attention: '%s' is not a number from 1 to %d\n", words[index], most);
    exit(2);
}

static vt_cpu_isa isa_of(const char *word)
{
#define CHOICE(isa, name)                                                                                              \
    if (strcmp(word, name) == 0) return isa;
    VT_CPU_ISAS(CHOICE)
    fprintf(stderr, "bench/attention: '%s' is no instruction set (--cpu_isa)\n", word);
    exit(2);
}

static vt_matrix make_matrix(vt_type type, int64_t rows, uint64_t seed)
{
    vt_matrix m = vt_matrix_make(calloc((size_t)(rows * WIDTH), sizeof(float)), rows, WIDTH);
    if (m.data == NULL) abort();
    m.type = type;
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const float value = (float)((double)(seed >> 40) / (1 << 23) - 1);
        if (type == VT_FLOAT32)
            m.data[i] = value;
        else
            m.half[i] = vt_half_round(type, value);
    }
    return m;
}

/* Forward and backward. */
static void measure(vt_backend *b, const vt_attention_shape *shape, const vt_matrix *m, float *log_sum,
                    double seconds[2])
{
    const double begin = vt_clock_seconds();
    b->attention_forward(b, shape, m[0], m[1], m[2], m[3], log_sum);
    const double middle = vt_clock_seconds();
    b->attention_backward(b, shape, m[0], m[1], m[2], m[3], log_sum, m[4], m[5], m[6], m[7]);
    seconds[0] = middle - begin;
    seconds[1] = vt_clock_seconds() - middle;
}

static void compare(vt_backend *b, vt_type type, int64_t tokens, int rounds)
{
    static double seconds[2][3][MOST_ROUNDS]; /* full, causal; forward, backward, both */
    static const char *const parts[] = {"forward", "backward", "both"};
    vt_matrix m[MATRICES];
    float *log_sum = calloc((size_t)(HEADS * tokens), sizeof *log_sum);
    if (log_sum == NULL) abort();
    for (int i = 0; i < MATRICES; i++) m[i] = make_matrix(type, tokens, (uint64_t)i + 1);
    for (int round = -1; round < rounds; round++)
        for (int causal = 0; causal < 2; causal++) {
            const vt_attention_shape shape = {.batch = 1,
                                              .heads = HEADS,
                                              .head_dim = HEAD_DIM,
                                              .queries = tokens,
                                              .keys = tokens,
                                              .causal = causal != 0};
            double taken[2];
            measure(b, &shape, m, log_sum, taken);
            if (round < 0) continue; /* not counted: memory is new */
            for (int part = 0; part < 3; part++)
                seconds[causal][part][round] = part < 2 ? taken[part] : taken[0] + taken[1];
        }
    for (int part = 0; part < 3; part++) {
        const double full = vt_median(seconds[0][part], rounds), causal = vt_median(seconds[1][part], rounds);
        printf("%-9s %-9s %10.5f %10.5f %6.2f\n", type == VT_FLOAT32 ? "float32" : "bfloat16", parts[part], full,
               causal, causal / full);
    }
    for (int i = 0; i < MATRICES; i++) free(m[i].data);
    free(log_sum);
}

int main(int argc, char **argv)
{
    const int tokens = number_of(argc, argv, 1, 1 << 20, 2048), rounds = number_of(argc, argv, 2, MOST_ROUNDS, 15);
    vt_backend *backend = NULL;
    if (vt_backend_open_cpu(argc > 3 ? isa_of(argv[3]) : VT_ISA_AUTO, 0, &backend) != VT_OK) {
        fprintf(stderr, "bench/attention: %s\n", vt_error_text());
        return 1;
    }
    printf("%s; %d tokens, %d heads of %d columns, %d rounds\n%-9s %-9s %10s %10s %6s\n", backend->name, tokens, HEADS,
           HEAD_DIM, rounds, "", "", "full s", "causal s", "share");
    compare(backend, VT_FLOAT32, tokens, rounds);
    compare(backend, VT_BFLOAT16, tokens, rounds);
    vt_backend_close(&backend);
    return 0;
}
