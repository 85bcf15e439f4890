/* examples/predict.c - one prediction and one search through libmoesim.
 * cc predict.c $(pkg-config --cflags --libs moesim) -o predict && ./predict scenario.json request.json */
#include <moesim.h>
#include <stdio.h>

static int fail(char *error) {
  fprintf(stderr, "predict: %s\n", error);
  moesim_free(error);
  return 1;
}

static int predict(const char *file) {
  char *error = NULL;
  moesim_scenario *scenario = moesim_scenario_load(file, &error);
  moesim_result *result = scenario ? moesim_run(scenario, MOESIM_FULL, &error) : NULL;
  if (result)
    printf("%s: %.3f s a step, %.0f tokens/s/GPU, %.1f GiB of %.1f\n", file, moesim_result_step_time_s(result),
           moesim_result_tokens_per_s_per_gpu(result), moesim_result_peak_memory_B(result) / (1 << 30),
           moesim_result_memory_capacity_B(result) / (1 << 30));
  moesim_result_free(result);
  moesim_scenario_free(scenario);
  return error ? fail(error) : 0;
}

static int search(const char *file) {
  char *error = NULL;
  moesim_plan *plan = moesim_plan_load(file, 3, 0, &error);
  if (!plan) return fail(error);
  for (int i = 0; i < moesim_plan_count(plan); i++)
    printf("%d. %.3f s\n", i + 1, moesim_result_step_time_s(moesim_plan_result(plan, i)));
  moesim_plan_free(plan);
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fputs("usage: predict SCENARIO REQUEST\n", stderr);
    return 2;
  }
  int status = predict(argv[1]);
  return status ? status : search(argv[2]);
}
