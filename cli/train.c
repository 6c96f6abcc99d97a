/* train.c: `koine train digits`: the main job. Data, training loop, test, report; the network is in net.c. */
#include "cli.h"

#include "draw.h"
#include "net.h"

#include <koine/device.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    cli *c;
    kn_ctx *k;
    net net;
    kn_images train, test; /* drawn digits: train is one batch, drawn anew each step */
    bool drawn;
    int64_t batch, steps, seed;
    double rate;
    float mean, scale; /* images enter as (x - mean) * scale */
    int64_t *order;    /* of the training images in this epoch */
    uint64_t rng;
    /* results */
    double accuracy, images_s, seconds;
    double loss; /* of the last steps, smoothed */
    int64_t *label;
} job;

static int failed(job *j) { return cli_fail(j->c, "%s", kn_error(j->k) ? kn_message(j->k) : "out of memory"); }

static uint64_t random64(uint64_t *s) { /* SplitMix64 */
    uint64_t z = *s += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- data ---- */

enum { TEST_DIGITS = 4000 };
static uint64_t train_seed(const job *j, int64_t step) { return ((uint64_t)j->seed * 1000003 + (uint64_t)step) * 2; }
static uint64_t test_seed(const job *j) { return (uint64_t)j->seed * 2 + 1; /* odd: never one of the training's */ }

static kn_status load(job *j) {
    char **data = cli_args(j->c, "data");
    const char *mnist = cli_str(j->c, "mnist", NULL);
    kn_status s;
    if (data) {
        s = kn_images_npy(j->k, data[0], data[1], &j->train);
        if (!s) s = kn_images_hold_out(j->k, &j->train, &j->test);
    } else if (mnist) {
        s = kn_images_mnist(j->k, mnist, 0, &j->train);
        if (!s) s = kn_images_mnist(j->k, mnist, 1, &j->test);
    } else {
        j->drawn = true;
        s = kn_images_digits(j->k, train_seed(j, 0), 512, &j->train); /* a sample, for mean and deviation */
        if (!s) s = kn_images_digits(j->k, test_seed(j), TEST_DIGITS, &j->test);
    }
    return s;
}

static int64_t pixels(const job *j) { return j->train.channels * j->train.height * j->train.width; }

static void measure(job *j) {
    double sum = 0, squares = 0, n = (double)(j->train.n * pixels(j));
    for (int64_t i = 0; i < j->train.n * pixels(j); i++) {
        sum += j->train.x[i];
        squares += (double)j->train.x[i] * j->train.x[i];
    }
    double mean = sum / n, var = squares / n - mean * mean;
    j->mean = (float)mean;
    j->scale = var > 1e-12 ? (float)(1 / sqrt(var)) : 1;
}

static void put(job *j, int64_t slot, const kn_images *from, int64_t i) {
    int64_t n = pixels(j);
    const float *x = from->x + i * n;
    float *to = j->net.x + slot * n, mean = j->mean, scale = j->scale;
    for (int64_t p = 0; p < n; p++) to[p] = (x[p] - mean) * scale;
    j->net.y[slot] = from->y[i];
}

/* The next training batch, to the network. */
static kn_status next_batch(job *j, int64_t step) {
    if (j->drawn) {
        kn_images_free(&j->train);
        kn_status s = kn_images_digits(j->k, train_seed(j, step + 1), j->batch, &j->train);
        for (int64_t i = 0; !s && i < j->batch; i++) put(j, i, &j->train, i);
        return s;
    }
    for (int64_t i = 0; i < j->batch; i++) {
        int64_t at = (step * j->batch + i) % j->train.n;
        if (at == 0) /* a new epoch, a new order */
            for (int64_t a = j->train.n - 1; a > 0; a--) {
                int64_t b = (int64_t)(random64(&j->rng) % (uint64_t)(a + 1)), t = j->order[a];
                j->order[a] = j->order[b];
                j->order[b] = t;
            }
        put(j, i, &j->train, j->order[at]);
    }
    return KN_OK;
}

/* ---- training and test ---- */

/* Warm-up, a plateau, then down to nothing. */
static double rate_at(const job *j, int64_t step) {
    double t = (double)step / (double)j->steps, up = (double)(step + 1) / 20;
    return j->rate * (up < 1 ? up : 1) * (t < 0.3 ? 1 : (1 - t) / 0.7);
}

static kn_status train(job *j) {
    bar b;
    bar_begin(&b, "training", j->steps);
    double begun = 0, shown = 0;
    for (int64_t step = 0; step < j->steps; step++) {
        float loss;
        kn_status s = next_batch(j, step);
        if (!s) s = net_step(&j->net, rate_at(j, step), &loss);
        if (s) return s;
        if (step == 0) begun = cli_now(); /* the first step compiles */
        shown = step ? 0.95 * shown + 0.05 * loss : loss;
        double rate = step ? (double)(step * j->batch) / (cli_now() - begun) : 0;
        char text[96];
        snprintf(text, sizeof text, "loss %.4f  %.0f images/s", shown, rate);
        bar_step(&b, step + 1, text);
        j->images_s = rate;
        j->loss = shown;
    }
    bar_end(&b);
    return KN_OK;
}

static kn_status test(job *j) {
    int64_t right = 0;
    for (int64_t at = 0; at < j->test.n; at += j->batch) {
        int64_t best[1024], n = j->test.n - at < j->batch ? j->test.n - at : j->batch;
        for (int64_t i = 0; i < j->batch; i++)
            put(j, i, &j->test, i < n ? at + i : 0); /* the last batch is filled up */
        kn_status s = net_predict(&j->net, best);
        if (s) return s;
        for (int64_t i = 0; i < n; i++) {
            j->label[at + i] = best[i];
            right += best[i] == j->test.y[at + i];
        }
    }
    j->accuracy = 100.0 * (double)right / (double)j->test.n;
    return KN_OK;
}

/* ---- report ---- */

/* A row of test images as they come, and one of those the network got wrong. */
static void show(const job *j) {
    if (j->train.channels != 1 || j->test.width > 64) return;
    int each = (int)(80 / ((j->test.width + 1) / 2 + 2)), n;
    if (each > 8) each = 8;
    float *scaled = malloc((size_t)(8 * pixels(j)) * sizeof *scaled);
    for (int wrong = 0; scaled && wrong < 2; wrong++) {
        picture p[8];
        n = 0;
        for (int64_t i = 0; i < j->test.n && n < each; i++) {
            bool miss = j->label[i] != j->test.y[i];
            if (wrong && !miss) continue;
            float top = 0, *s = scaled + n * pixels(j);
            for (int64_t q = 0; q < pixels(j); q++) top = fmaxf(top, j->test.x[i * pixels(j) + q]);
            for (int64_t q = 0; q < pixels(j); q++) s[q] = j->test.x[i * pixels(j) + q] / (top > 0 ? top : 1);
            p[n].pixels = s;
            if (miss) snprintf(p[n].caption, sizeof p[n].caption, "%d, is %d", (int)j->label[i], (int)j->test.y[i]);
            else snprintf(p[n].caption, sizeof p[n].caption, "%d", (int)j->label[i]);
            n++;
        }
        if (n) draw_row(p, n, j->test.height, j->test.width);
    }
    free(scaled);
}

static void report(const job *j) {
    kn_stats st = kn_stats_of(j->k);
    double compile = st.lower_seconds + st.compile_seconds;
    int64_t kernels = (int64_t)(st.kernels_compiled + st.kernels_cached);
    if (j->c->json) {
        cli_json(stdout,
                 "d test_accuracy, d loss, i test_images, i steps, i batch, d images_s, i kernels, d compile_s, d "
                 "run_s, d seconds",
                 j->accuracy, j->loss, j->test.n, j->steps, j->batch, j->images_s, kernels, compile, st.run_seconds,
                 j->seconds);
        return;
    }
    show(j);
    printf("%lld kernels, compiled in %.2f s, ran for %.2f s; %.2f s in all, %.0f images/s\n", (long long)kernels,
           compile, st.run_seconds, j->seconds, j->images_s);
    printf("test accuracy %.1f %%\n", j->accuracy);
}

static bool options_read(job *j) {
    cli *c = j->c;
    int64_t epochs = 0;
    j->batch = 64;
    j->rate = 0.005;
    if (!cli_int(c, "batch", 1, 1024, &j->batch) || !cli_int(c, "steps", 1, 1000000000, &j->steps) ||
        !cli_int(c, "epochs", 1, 1000000, &epochs) || !cli_int(c, "seed", 0, INT64_C(1) << 40, &j->seed) ||
        !cli_real(c, "rate", 1e-9, 100, &j->rate))
        return false;
    if (cli_has(c, "data") && cli_has(c, "mnist")) return cli_usage(c, "--data or --mnist, not both"), false;
    if (cli_has(c, "steps") && cli_has(c, "epochs")) return cli_usage(c, "--steps or --epochs, not both"), false;
    return true;
}

/* What depends on the data: batch, steps, memory. */
static bool prepare(job *j) {
    int64_t epochs = cli_has(j->c, "mnist") ? 2 : 15;
    cli_int(j->c, "epochs", 1, 1000000, &epochs);
    if (!j->drawn && !cli_has(j->c, "batch"))
        while (j->batch > 16 && j->batch * 20 > j->train.n) j->batch /= 2; /* small sets: more steps an epoch */
    int64_t an_epoch = j->drawn ? 100 : (j->train.n + j->batch - 1) / j->batch;
    if (!j->steps) j->steps = j->drawn && !cli_has(j->c, "epochs") ? 400 : epochs * an_epoch;
    measure(j);
    j->label = calloc((size_t)j->test.n + 1, sizeof *j->label);
    j->order = malloc((size_t)j->train.n * sizeof *j->order);
    if (!j->label || !j->order) return false;
    for (int64_t i = 0; i < j->train.n; i++) j->order[i] = i;
    j->rng = (uint64_t)j->seed;
    return true;
}

static int run(job *j) {
    if (load(j)) return failed(j);
    if (j->train.height < 6 || j->train.width < 6)
        return cli_fail(j->c, "images of %lld x %lld are too small; 6 x 6 is the least", (long long)j->train.height,
                        (long long)j->train.width);
    if (j->test.height != j->train.height || j->test.width != j->train.width)
        return cli_fail(j->c, "training images are %lld x %lld, test images %lld x %lld", (long long)j->train.height,
                        (long long)j->train.width, (long long)j->test.height, (long long)j->test.width);
    if (!prepare(j)) return failed(j);
    int classes = j->train.classes > j->test.classes ? j->train.classes : j->test.classes;
    double begun = cli_now();
    kn_manual_seed(j->k, (uint64_t)j->seed);
    kn_status s = net_open(&j->net, j->k, j->train.channels, j->train.height, j->train.width, classes, j->batch);
    if (!s) s = train(j);
    if (!s) s = test(j);
    if (s) return failed(j);
    j->seconds = cli_now() - begun;
    report(j);
    return CLI_OK;
}

static int train_verb(cli *c) {
    if (strcmp(c->operand[0], "digits") != 0)
        return cli_usage(c, "no job %s; there is `koine train digits`", c->operand[0]);
    job j = {.c = c};
    if (!options_read(&j)) return CLI_USAGE;
    j.k = kn_open(cli_str(c, "device", NULL));
    if (!j.k) return cli_fail(c, "out of memory");
    cli_log(j.k);
    int rc = kn_error(j.k) ? failed(&j) : run(&j);
    kn_images_free(&j.train);
    kn_images_free(&j.test);
    net_close(&j.net);
    free(j.label);
    free(j.order);
    kn_close(j.k);
    return rc;
}

static const cli_opt options[] = {
    {"data", "X.npy Y.npy", "images of any one size and their labels; every fifth is held out to test on"},
    {"mnist", "DIR", "the four MNIST files, plain or .gz"},
    {"steps", "N", "training steps; default 400 on drawn digits"},
    {"epochs", "N", "passes over the data; default 2 with --mnist, 15 with --data"},
    {"batch", "N", "images a step; default 64, fewer on small sets"},
    {"rate", "R", "learning rate; default 0.005"},
    {"seed", "N", "of the network, the order and the drawn digits; default 0"},
    {"device", "D", "where to run; default KN_DEVICE, else CPU"},
    {"json", NULL, "one object with the results"},
    {NULL, NULL, NULL},
};
const cli_verb cli_train = {
    .name = "train",
    .args = "digits [--data X.npy Y.npy | --mnist DIR] [OPTIONS]",
    .summary = "train a small convolutional network and test it",
    .text = "The network is conv, conv, pool, linear, trained with Adam. Without --data or --mnist the program draws "
            "handwritten-style digits of its own; those it is tested on come from another seed.",
    .opt = options,
    .least = 1,
    .most = 1,
    .run = train_verb,
};
