/* resnet.c: ResNet-50 as torchvision has it: bottlenecks with their stride in the 3 x 3 convolution. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

typedef struct net {
    zoo *z;
    bool training;
} net;

/* Convolution without bias, batch normalisation; name: the pair's names, "conv1" and "bn1". */
static kn_tensor conv_bn(net *n, const char *conv, const char *bn, kn_tensor x, int64_t out, int size, int stride) {
    char text[ZOO_NAME];
    zoo *z = n->z;
    int64_t in = kn_size(x, 1);
    double limit = 1 / sqrt((double)(in * size * size));
    snprintf(text, sizeof text, "%s.weight", conv);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, text, KN_SHAPE(out, in, size, size), -limit, limit), p[4];
    static const struct {
        const char *name;
        zoo_kind kind;
        double lo, hi;
    } part[4] = {{"weight", ZOO_WEIGHT, 0.5, 1.5},
                 {"bias", ZOO_WEIGHT, -0.5, 0.5},
                 {"running_mean", ZOO_STATE, -0.1, 0.1},
                 {"running_var", ZOO_STATE, 0.5, 1.5}};
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%s.%s", bn, part[i].name);
        p[i] = zoo_hold(z, part[i].kind, text, KN_SHAPE(out), part[i].lo, part[i].hi);
    }
    x = kn_conv2d(x, w, NULL, stride, size / 2, 1, 1);
    if (n->training && !z->making) return kn_batch_norm_train(x, p[2], p[3], p[0], p[1], 0.1, 1e-5);
    return kn_batch_norm(x, p[2], p[3], p[0], p[1], 1e-5);
}

static kn_tensor bottleneck(net *n, kn_tensor x, int64_t width, int stride, bool first) {
    kn_tensor y = kn_relu(conv_bn(n, "conv1", "bn1", x, width, 1, 1));
    y = kn_relu(conv_bn(n, "conv2", "bn2", y, width, 3, stride));
    y = conv_bn(n, "conv3", "bn3", y, 4 * width, 1, 1);
    if (first) x = conv_bn(n, "downsample.0", "downsample.1", x, 4 * width, 1, stride);
    return kn_relu(kn_add(x, y));
}

static kn_tensor logits(zoo *z, bool training) {
    static const int blocks[4] = {3, 4, 6, 3};
    net n = {z, training};
    int64_t side = z->small ? 32 : 224, width = z->small ? 8 : 64, classes = z->small ? 10 : 1000;
    kn_tensor x = zoo_hold(z, ZOO_INPUT, "x", KN_SHAPE(z->batch, 3, side, side), -1, 1);
    x = kn_relu(conv_bn(&n, "conv1", "bn1", x, width, 7, 2));
    x = kn_max_pool2d(x, 3, 2, 1);
    for (int stage = 0; stage < 4; stage++) {
        for (int b = 0; b < (z->small ? 1 + stage % 2 : blocks[stage]); b++) {
            zoo_in(z, "layer%d.%d", stage + 1, b);
            x = bottleneck(&n, x, width << stage, b == 0 && stage ? 2 : 1, b == 0);
        }
    }
    zoo_in(z, "");
    return zoo_linear(z, "fc", kn_mean_over(x, KN_SHAPE(2, 3), 0), classes, true);
}

kn_tensor zoo_resnet50(zoo *z) { return logits(z, false); }

kn_tensor zoo_resnet50_loss(zoo *z) {
    kn_tensor y = zoo_ints(z, "labels", KN_SHAPE(z->batch), z->small ? 10 : 1000);
    return kn_cross_entropy(logits(z, true), y);
}
