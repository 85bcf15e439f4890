/* moesim.h - libmoesim: predict and plan training runs from a program of your own.
 *
 *   char *error = NULL;
 *   moesim_scenario *scenario = moesim_scenario_load("run.json", &error);
 *   moesim_result *result = scenario ? moesim_run(scenario, MOESIM_FULL, &error) : NULL;
 *   if (!result) { fprintf(stderr, "%s\n", error); moesim_free(error); return 1; }
 *   printf("%.3f s\n", moesim_result_step_time_s(result));
 *
 * Build with `pkg-config --cflags --libs moesim`. The files are those of the command line (`moesim schema`); JSON that
 * comes back is what `moesim run --json` and `moesim plan --json` print.
 *
 * Errors: a function that returns a pointer returns NULL and, unless `error` is NULL, sets *error to one line of text
 * that names file, line and path; free it with moesim_free. A run that does not fit into memory is a result, not an
 * error. A result, plan or scenario that is NULL is no crash: a getter then says NaN, NULL or -1, a function that makes
 * something fails with an error, a function that frees does nothing. Threads: different objects may be used on
 * different threads at once; one object by one thread at a time. Numbers: the same input gives the same bits, on any
 * number of threads, and texts have a point in numbers, whatever the locale. The library turns off GSL's aborting error
 * handler. */
#ifndef MOESIM_H
#define MOESIM_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOESIM_API __attribute__((visibility("default")))
#else
#define MOESIM_API
#endif

typedef struct moesim_scenario moesim_scenario;
typedef struct moesim_result moesim_result;
typedef struct moesim_plan moesim_plan;
typedef enum {
  MOESIM_BOUND,
  MOESIM_FAST,
  MOESIM_FULL
} moesim_fidelity; /* closed form; schedule of chunks; every operator */

MOESIM_API const char *moesim_version(void); /* "0.1.0"; not to be freed */
MOESIM_API void moesim_free(void *text);     /* frees any string that this library returned as char *; NULL is fine */
/* Where models/ and hardware/ lie, unless $MOESIM_DATA says so; NULL: where they were installed. Before anything else.
 */
MOESIM_API void moesim_set_data(const char *folder);

/* --- one run --------------------------------------------------------------------------------------------------- */
MOESIM_API moesim_scenario *moesim_scenario_load(const char *file, char **error);
/* From a JSON text; `name` stands for the file in messages. */
MOESIM_API moesim_scenario *moesim_scenario_parse(const char *json, const char *name, char **error);
MOESIM_API void moesim_scenario_free(moesim_scenario *scenario);

/* `scenario` must live as long as the result. */
MOESIM_API moesim_result *moesim_run(const moesim_scenario *scenario, moesim_fidelity fidelity, char **error);
MOESIM_API void moesim_result_free(moesim_result *result);

/* Any figure of docs/json.md's table of a run by its key: "step_time_s", "time.bubble_s", "memory.stages[0].peak_B",
 * "bound.step_time_lower_s". Booleans are 1 or 0. NaN for a text, a figure that is not known, an unknown key. */
MOESIM_API double moesim_result_get(const moesim_result *result, const char *key);
/* The same of texts; NULL for numbers and what is not known; owned by the result. */
MOESIM_API const char *moesim_result_get_text(const moesim_result *result, const char *key);
/* The most asked for, by name. */
MOESIM_API int moesim_result_feasible(const moesim_result *result); /* 1: fits into memory */
/* NULL when it fits; owned by the result. */
MOESIM_API const char *moesim_result_why_infeasible(const moesim_result *result);
/* One sentence or NULL; owned by the result. */
MOESIM_API const char *moesim_result_bottleneck(const moesim_result *result);
MOESIM_API double moesim_result_step_time_s(const moesim_result *result);    /* NaN where it was not simulated */
MOESIM_API double moesim_result_step_time_band(const moesim_result *result); /* relative half width of the 90 % band */
MOESIM_API double moesim_result_tokens_per_s_per_gpu(const moesim_result *result);
MOESIM_API double moesim_result_tflops_per_gpu(const moesim_result *result); /* model TFLOP/s, Megatron's convention */
MOESIM_API double moesim_result_mfu(const moesim_result *result);            /* 0 to 1 */
/* What the fullest pipeline stage needs of its device, with the reserve of the allocator and what lives beside it: as
 * the command line says, and what must be within the capacity. */
MOESIM_API double moesim_result_peak_memory_B(const moesim_result *result);
MOESIM_API double moesim_result_memory_capacity_B(const moesim_result *result);
MOESIM_API char *moesim_result_json(const moesim_result *result); /* everything; free with moesim_free */

/* --- asking in a few words ------------------------------------------------------------------------------------- */
/* The plan request that `moesim plan --model M --hardware H --gpus N --write-request -` prints, for moesim_plan_parse.
 * Several models, machines and numbers of GPUs are separated by commas; precision NULL: bf16; seq_length and
 * global_batch_size 0: the command line's defaults. Free with moesim_free. */
MOESIM_API char *moesim_request_json(const char *model, const char *hardware, const char *gpus, const char *precision,
                                     int seq_length, int global_batch_size, char **error);

/* --- a search -------------------------------------------------------------------------------------------------- */
/* Searches the request of `file` and keeps the best `top` layouts (0: the request's own number, else 10), on `threads`
 * threads (0: all cores). */
MOESIM_API moesim_plan *moesim_plan_load(const char *file, int top, int threads, char **error);
MOESIM_API moesim_plan *moesim_plan_parse(const char *json, const char *name, int top, int threads, char **error);
MOESIM_API void moesim_plan_free(moesim_plan *plan);
MOESIM_API int moesim_plan_count(const moesim_plan *plan); /* 0: nothing is feasible */
/* The i-th best (0: the winner), owned by the plan; NULL when there is none. */
MOESIM_API const moesim_result *moesim_plan_result(const moesim_plan *plan, int i);
MOESIM_API char *moesim_plan_scenario_json(const moesim_plan *plan,
                                           int i); /* a complete scenario file, or NULL; free with moesim_free */
MOESIM_API char *moesim_plan_json(const moesim_plan *plan); /* free with moesim_free */

/* --- a run as the command line takes it ------------------------------------------------------------------------- */
/* What the verb `run` below predicts of `file` or `json`, also of machines of several kinds, kept as *scenario and
 * *result, both to be freed, the result first: for those who read a few figures of many runs. `strict`: refuse what
 * needs a figure that the machine's file only assumes. Status and *error as of moesim_call; both objects are NULL where
 * there is no result. */
MOESIM_API int moesim_predict(const char *file, const char *json, moesim_fidelity fidelity, int strict,
                              moesim_scenario **scenario, moesim_result **result, char **error);

/* --- every verb, JSON in and JSON out -------------------------------------------------------------------------- */
typedef struct {
  /* Not 0: the work ends soon, with what was found or with an error. May be set by any thread; NULL: never. */
  const volatile int *stop;
  /* Of a plan of one request, on the calling thread, after every batch: the share that is done and a line as `moesim
   * plan --json --follow` prints it (not to be kept). NULL: not told. */
  void (*progress)(double done, const char *so_far, void *user);
  void *user;
} moesim_watch;

/* What the command line does, with the same answer: `run` (a scenario), `plan` (a request), `whatif`, `goodput` (a
 * study) say what they print with --json; `launch` and `page` (a scenario) the launch script and the page (as report
 * --no-validation); `request` (options alone) the request of a few words; `anchor` (options alone) a machine file;
 * `names` (nothing) the models and machines. It works on `file`, or on the text `json`, which `file` (or NULL) then
 * names in messages and for paths beside it. `options`: NULL or a JSON object of the verb's options, `-` written `_`:
 * {"fidelity": "fast"}, {"top": 3}. Returns the exit status of the command line: 0, 1 (an answer, but nothing feasible;
 * or stopped before there was any), 2 options, 3 what a file says, 4 the environment. *answer (free with moesim_free)
 * is NULL unless there is one, then *error is one line; both may be NULL. `watch` may be NULL. Several threads may call
 * at once. */
MOESIM_API int moesim_call(const char *verb, const char *file, const char *json, const char *options,
                           const moesim_watch *watch, char **answer, char **error);

#ifdef __cplusplus
}
#endif
#endif
