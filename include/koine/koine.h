/* koine.h: the whole public surface. */
#ifndef KN_KOINE_H
#define KN_KOINE_H

#include <koine/base.h>
#include <koine/device.h>
#include <koine/uop.h>
#include <koine/rules.h>
#include <koine/tensor.h>
#include <koine/nn.h>
#include <koine/io.h>

#endif
