#ifndef KI_PLAN_H
#define KI_PLAN_H
#include "stages/stages.h"
bool ki_plan(ki_program *p, const ki_target *t);
#endif
