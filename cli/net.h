/* net.h: the network `koine train` trains: conv, conv, pool, linear, by Adam. Public API only: this is also an example
 * of how to train with koine. */
#ifndef CLI_NET_H
#define CLI_NET_H

#include <koine/koine.h>
#include <koine/nn.h>

#include <stdint.h>

enum { NET_PARAMS = 6 };
typedef struct net {
    kn_ctx *k;
    int64_t channels, height, width, batch;
    int classes;
    int size, stride, pad; /* of the convolutions */
    kn_tensor p[NET_PARAMS]; /* w1 b1 w2 b2 w3 b3 */
    kn_optim *adam;
    float *x;   /* the batch that is next: images (batch, channels, height, width) */
    int32_t *y; /* and their classes (batch,) */
    kn_tensor images, labels; /* the same memory */
    kn_captured *step, *guess; /* what net_step and net_predict do; NULL: not yet */
    kn_tensor loss, best;      /* and what comes of it */
} net;

/* Parameters from the context's seed. Images must be 6 x 6 at least. net_close in any case. */
kn_status net_open(net *n, kn_ctx *k, int64_t channels, int64_t height, int64_t width, int classes, int64_t batch);
void net_close(net *n);
/* The loss of the batch in x and y, and one step's assigns. Nothing runs. */
kn_tensor net_build(net *n);
/* One step on x and y. */
kn_status net_step(net *n, double rate, float *loss);
/* The likeliest class of each image in x. */
kn_status net_predict(net *n, int64_t *label);

#endif
