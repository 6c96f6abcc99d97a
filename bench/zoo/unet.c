/* unet.c: a block of a U-Net: a convolution, one down to half the size, one there, back up beside what was kept, and out. Each
 * is followed by group normalisation and SiLU. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

typedef struct sizes {
    int64_t in, channels, side;
    int groups;
} sizes;

static const sizes full = {4, 64, 64, 8}, small = {2, 8, 8, 4};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

static kn_tensor conv(zoo *z, const char *name, kn_tensor x, int64_t out, int size, int stride) {
    char text[ZOO_NAME];
    int64_t in = kn_size(x, 1);
    double limit = 1 / sqrt((double)(in * size * size));
    snprintf(text, sizeof text, "%s.weight", name);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, text, KN_SHAPE(out, in, size, size), -limit, limit);
    snprintf(text, sizeof text, "%s.bias", name);
    return kn_conv2d(x, w, zoo_hold(z, ZOO_WEIGHT, text, KN_SHAPE(out), -limit, limit), stride, size / 2, 1, 1);
}

static kn_tensor unit(zoo *z, const char *name, kn_tensor x, int64_t out, int stride) {
    zoo_in(z, "%s", name);
    x = conv(z, "conv", x, out, 3, stride);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, "norm.weight", KN_SHAPE(out), 0.5, 1.5);
    kn_tensor b = zoo_hold(z, ZOO_WEIGHT, "norm.bias", KN_SHAPE(out), -0.5, 0.5);
    x = kn_silu(kn_group_norm(x, sizes_of(z)->groups, w, b, 1e-5));
    zoo_in(z, "");
    return x;
}

kn_tensor zoo_unet(zoo *z) {
    const sizes *s = sizes_of(z);
    int64_t c = s->channels;
    kn_tensor x = zoo_hold(z, ZOO_INPUT, "x", KN_SHAPE(z->batch, s->in, s->side, s->side), -1, 1);
    kn_tensor kept = unit(z, "enter", x, c, 1);
    x = unit(z, "down", kept, 2 * c, 2);
    x = unit(z, "middle", x, 2 * c, 1);
    x = unit(z, "up", kn_interpolate(x, KN_SHAPE(s->side), KN_INTERP_NEAREST, 0), c, 1);
    x = unit(z, "leave", kn_cat2(kept, x, 1), c, 1);
    return conv(z, "out", x, s->in, 1, 1);
}

kn_tensor zoo_unet_loss(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor y = zoo_hold(z, ZOO_INPUT, "target", KN_SHAPE(z->batch, s->in, s->side, s->side), -1, 1);
    return kn_mse_loss(zoo_unet(z), y);
}
