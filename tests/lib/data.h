/* tests/lib/data.h - a small world of models and machines in a temporary folder, so that tests do not depend
 * on the files of models/ and hardware/: models "tiny" (dense, 12 layers) and "moe" (8 layers, one dense, 16
 * experts, latent attention), machines "box" (with curves) and "other" (curves_from box); laws and names of
 * kernels are the shipped ones. */
#ifndef MS_TESTS_DATA_H
#define MS_TESTS_DATA_H

extern const char ms_test_tiny[], ms_test_moe[], ms_test_box[];
extern const char ms_test_scenario[]; /* of moe on box */
extern const char ms_test_request[];

/* cmocka group setup and teardown: writes the folder, points MOESIM_DATA at it; removes it. */
int ms_test_data_setup(void **state);
int ms_test_data_teardown(void **state);
/* Path of a file of that folder. (transfer full) */
char *ms_test_data_path(const char *name);
/* Writes `text` to a file of that folder. */
void ms_test_data_write(const char *name, const char *text);

#endif
