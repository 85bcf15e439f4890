/* tests/lib/profiles.h - the small world of lib/data with the shipped names of kernels, and profiles in it. */
#ifndef MS_TESTS_PROFILES_H
#define MS_TESTS_PROFILES_H

#include "study/profile.h"

extern MsKernelTable *ms_test_kernels;

/* cmocka group setup and teardown, those of lib/data.h in them. */
int ms_test_profiles_setup(void **state);
int ms_test_profiles_teardown(void **state);

MsProfile *ms_test_profile(const char *file, int stage); /* stage -1: that computes longest. (transfer full) */
/* Writes scenario.json: model "moe" on 8 GPUs of "box" in that layout. (transfer full) its path */
char *ms_test_profile_scenario(const char *layout);

#endif
