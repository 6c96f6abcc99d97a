#include "stages/7_plan/plan.h"
bool ki_plan(ki_program *p, const ki_target *t) { return (void)p,(void)t,true; }
