#include <fcntl.h>
#include <gsl/gsl_errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/ranks.h"
#include "base/vector.h"
#include "cli/cli.h"
#include "serve/serve.h"

static const MsVerb verbs[] = {
    {"run", "SCENARIO…", "predict step time, throughput and memory of each scenario",
     "  moesim run scenarios/run-deepseek-v3-gb200-256.json\n"
     "  moesim run --explain scenarios/run-deepseek-v3-gb200-256.json\n"
     "  moesim run --trace step.json scenarios/run-deepseek-v3-gb200-256.json   open step.json in ui.perfetto.dev\n"
     "  moesim run --timeline scenarios/run-llama3-70b-h100-64.json            the pipeline in characters\n"
     "  moesim run --trace rank0.json --like kineto scenarios/run-llama3-70b-h100-64.json   as PyTorch's profiler\n"
     "  moesim run --trace step.goal --like goal my-run.json    every rank, for LogGOPSim and ATLAHS\n"
     "  moesim run --fidelity cluster --trace ranks.json --ranks 0,8 my-run.json    as each of them went\n"
     "  mpirun -n 4 moesim run --fidelity cluster --draws 1000 my-run.json          draws shared by processes\n"
     "  moesim run --json scenarios/*.json\n",
     ms_cli_run, TRUE, ms_ranks_here},
    {"plan", "REQUEST",
     "search the layouts that a request leaves open and rank them; exit 1 when none is feasible, or in time",
     "  moesim plan --model qwen3-30b-a3b --hardware h100-sxm --gpus 64\n"
     "  moesim plan --model llama3-70b --hardware h100-sxm,b200-sxm --gpus 128,256\n"
     "                                                  which machine, and how many?\n"
     "  moesim plan --model mixtral-8x7b --hardware h100-sxm --gpus 64 --write-request request.json\n"
     "                                                  all choices in a file, to edit and plan\n"
     "  moesim plan scenarios/plan-deepseek-v3-gb200-256.json\n"
     "  moesim plan --around mine.json                  my run, with its layout left open: what would be faster, and "
     "why?\n"
     "  moesim plan --top 3 --explain request.json\n"
     "  moesim plan --compare mine.json request.json    my layout beside the winner, part by part\n"
     "  moesim plan --out best.json request.json        the winner as a scenario, for moesim run and report\n",
     ms_cli_plan, TRUE, ms_ranks_here},
    {"whatif", "FILE…", "change a base run along axes and take the differences apart by part",
     "  moesim whatif --base my-run.json --set hardware.nic_Bps=200Gb/s     what if the network were that?\n"
     "  moesim whatif --base my-run.json --set gpus=64,128 --set training.global_batch_size=512,1024\n"
     "  moesim whatif scenarios/whatif/nic.json\n"
     "  moesim whatif --plot domain.svg scenarios/whatif/nvlink-domain.json\n"
     "  moesim whatif --csv points.csv scenarios/whatif/*.json\n"
     "  moesim whatif --hardware b200-sxm scenarios/whatif/nic.json     the same question on another machine\n"
     "\nA study names a base scenario (or a plan request) and the keys that change; `moesim schema whatif` lists its "
     "keys.\n",
     ms_cli_whatif, TRUE},
    {"check", "BASELINE [SCENARIO…]", "compare today's predictions with stored ones; exit 1 on drift",
     "  moesim check --update mine.json runs/*.json                    store the predictions of these scenarios\n"
     "  moesim check mine.json                                         did anything move since?\n"
     "  moesim check --junit check.xml --markdown check.md mine.json   for CI systems, see docs/ci.md\n"
     "  moesim check --update mine.json                                accept what moved\n",
     ms_cli_check, TRUE},
    {"goodput", "FILE…",
     "failures, checkpoints, restarts: effective training time, days and GPU-hours to a token budget",
     "  moesim goodput scenarios/goodput/llama3-405b-16384.json\n"
     "  moesim goodput --json scenarios/goodput/*.json\n"
     "\nA file names a run, the reliability of its machines (reliability/) and what is done about failures; `moesim "
     "schema goodput` lists its keys.\n",
     ms_cli_goodput, TRUE},
    {"show", "model|hardware|scenario|ops|schedule|memory|launch|fabric|laws NAME",
     "what was understood: parameters, data sheets and curves, groups, operators, schedules, bytes",
     "  moesim show model                       the names that are known; the same for hardware and schedule\n"
     "  moesim show model deepseek-v3\n"
     "  moesim show hardware h100-sxm\n"
     "  moesim show ops scenarios/run-deepseek-v3-gb200-256.json\n"
     "  moesim show launch --form slurm my-run.json     what starts it: arguments and environment\n"
     "  moesim show schedule 1f1b --stages 4 --microbatches 8\n"
     "  moesim show schedule dualpipe --stages 8 --microbatches 20 --svg dualpipe.svg\n"
     "  moesim show schedule zb-h1 --stages 4 --microbatches 8 --times 1,1,1,0.1 --json\n"
     "\nJSON of a schedule: `order` holds per stage [\"F\",microbatch,chunk], \"B\" (whole backward, or the input "
     "gradient where a \"W\" "
     "of the same microbatch and chunk follows), \"W\", and [\"FB\",microbatch,chunk,microbatch,chunk] for a merged "
     "pair.\n",
     ms_cli_show},
    {"launch", "SCENARIO", "what starts a run: arguments and environment, for a shell, Slurm, Kubernetes or SkyPilot",
     "  moesim launch my-run.json                          one torchrun a node\n"
     "  moesim launch --form slurm --restarts 3 my-run.json\n"
     "  moesim launch --form k8s:jobset --out job.yaml my-run.json\n"
     "  moesim launch --explain my-run.json                which key of the scenario each argument says\n"
     "  moesim launch --preflight my-run.json              a script that checks the nodes first\n"
     "\nNothing is started: the text is printed. A scenario that the release cannot say, or would reject, is refused "
     "with the key and the rule.\n",
     ms_cli_launch},
    {"validate", "DIR|FILE…", "compare predictions with the `measured` section of scenarios",
     "  moesim validate my-runs/\n"
     "  moesim validate --by gpu --fidelity fast scenarios/published\n"
     "  moesim validate --exact --plot scatter.svg scenarios/published\n"
     "  moesim validate --ladders tests/data/ladders.json scenarios/published   does it put runs in the right order?\n"
     "  moesim validate --cross-validate scenarios/published     what are the fitted figures worth on other runs?\n"
     "\nA rate is compared as the step time it stands for; errors are predicted / measured - 1.\n"
     "Exit 1 when every run is refused.\n",
     ms_cli_validate, TRUE},
    {"fit", "--hardware NAME MEASUREMENTS.csv…",
     "fit the curves of a machine to measured kernels and collectives, or evaluate them",
     "  moesim fit --hardware h100-sxm gemm_consensus.csv.gz collectives_nccl.csv.gz --out h100-mine.json\n"
     "  moesim fit --evaluate --hardware h100-sxm gemm_consensus.csv.gz\n"
     "  moesim fit --evaluate --held-back --json --hardware h100-sxm *.csv.gz\n"
     "\nColumns are found by name (gpu, source optional): dtype,m,n,k,latency_us for GEMMs; "
     "op,num_gpus,bytes,latency_us for collectives; ... "
     "15 % of the shapes are held back by a hash and give the residuals; the rest of the profile stays as it is.\n",
     ms_cli_fit, TRUE},
    {"report", "SCENARIO…|--plan REQUEST|--around SCENARIO --html FILE",
     "one self-contained HTML page: timeline, memory, layout map, MFU waterfall, communication, operators",
     "  moesim report --terminal scenarios/run-deepseek-v3-gb200-256.json   the same in characters, for login nodes\n"
     "  moesim report scenarios/run-deepseek-v3-gb200-256.json --html step.html\n"
     "  moesim report --plan scenarios/plan-deepseek-v3-gb200-256.json --html plan.html     all layouts on a map\n"
     "  moesim report --around scenarios/run-llama3-70b-h100-64.json --html mine.html     mine among them\n"
     "  moesim report a.json b.json --html compare.html     two layouts side by side\n"
     "  moesim report my-run.json trace.json.gz --html diff.html     a run and the profile of it\n"
     "  moesim report my-run.json --whatif scenarios/whatif/nic.json --html nic.html\n"
     "  moesim report --validation my-runs/ my-runs/one.json --html one.html\n",
     ms_cli_report, TRUE},
    {"calibrate", "[--quick|--check|--gpu]",
     "measure this CPU or a GPU: a profile of this machine, and whether predictions on it hold",
     "  moesim calibrate                                   five minutes; writes the profile `local`\n"
     "  moesim calibrate --quick --out mine.json           under a minute\n"
     "  moesim calibrate --check --out checked/            steps that were not measured: predicted, run, compared\n"
     "  moesim calibrate --gpu --out mine/                 tables of a GPU, for moesim fit\n"
     "  moesim fit --hardware h100-sxm --out h100-mine.json mine/*.csv\n"
     "\nOf a CPU: reduced training steps are run by the executor (moesim exec), messages between two ranks by mpirun; "
     "curves are fitted to their rows. Exit 1 "
     "when shapes held back, or the steps of --check, are off by more than docs/calibrate.md says. Of a GPU: products, "
     "copies and collectives, through CUDA (cuBLAS, NCCL) or MUSA (muBLAS, MCCL) as they are found at run time; "
     "MOESIM_GPU_LIBRARIES "
     "names a folder to look in first. Exit 4 where there is no GPU.\n",
     ms_cli_calibrate, TRUE, ms_ranks_here},
    {"exec", "SCENARIO",
     "run a step of the operator list for real on this CPU, over MPI ranks where the layout has several, and check it "
     "against the list",
     "  moesim exec scenarios/exec/dense-1.json\n"
     "  moesim exec --dtype f64 --dump one.dump scenarios/exec/dense-1.json\n"
     "\nEvery row that moesim predicts is a real kernel or a real message here. A layout of several GPUs is started "
     "with mpirun, one rank for each GPU. "
     "After every row the bytes kept for backward, the bytes sent and the FLOP are compared with the list; exit 1 "
     "where they differ. docs/exec.md has more.\n",
     ms_cli_exec, TRUE, ms_ranks_here},
    {"gemm", "decide|run|bench M N K | source",
     "matrix multiplication with fewer multiplications: what it would choose and why, run it, time it beside the "
     "libraries",
     "  moesim gemm decide 4096 4096 4096\n"
     "  moesim gemm decide 16384 7168 2048 --dtype bf16 --hardware h100-sxm\n"
     "  moesim gemm bench 4096 11008 4096 --threads 2\n"
     "  moesim gemm run 3000 3000 3000 --scheme strassen*strassen --workspace 0.1\n"
     "  moesim gemm bench 8192 8192 8192 --device cuda --dtype bf16      a generated kernel beside cuBLAS\n"
     "  moesim gemm source --dialect hip --scheme strassen --dtype bf16  its source\n"
     "\nSchemes multiply blocks with fewer products than the definition (Strassen and successors) and pay with "
     "additions and rounding error. The rates "
     "of this CPU are measured first, which takes about a second. docs/lcma.md has the schemes, the model and the "
     "library for other programs.\n",
     ms_cli_gemm},
    {"serve", "", "the page live on this machine: choose, watch the plan appear, compare layouts",
     "  moesim serve                     then open http://127.0.0.1:8080/\n"
     "  moesim serve --port 9000\n",
     ms_cli_serve, FALSE, ms_serve_here},
    {"import",
     "hf|megatron|modelzoo|primus FILE [WORD…] | torchtitan|deepspeed|peft FILE | "
     "kineto|nsys|rocprof|msprof TRACE… | slurm-topology|ibnetdiscover FILE [NODES] | nccl-topo FILE | goal FILE | "
     "log|nccl-tests|rccl-tests|hccl-test|ib_write_bw|stream|mlc LOG…",
     "a model from a Hugging Face config.json, a scenario from a Megatron command line, a model-zoo or Primus YAML, "
     "TorchTitan's TOML or DeepSpeed's JSON, what was measured from a training log, a machine from logs of benchmarks, "
     "where the time of a profile went, a fabric "
     "from what a cluster says of itself, the time of a GOAL schedule",
     "  moesim import hf config.json --out my-model.json\n"
     "  moesim import megatron run.sh --hardware h100-sxm --gpus 64 --out my-run.json\n"
     "  moesim import megatron run_pretrain_mixtral.sh WORK PATCH NAME hostfile DATA 1 4 8 1 256 TOKENIZER     a "
     "script and what it is called with\n"
     "  TP=1 PP=4 EP=8 CP=1 MBS=1 GBS=256 SEQ_LEN=4096 NNODES=8 moesim import modelzoo Mixtral-8x7B.yaml\n"
     "  moesim import primus examples/megatron/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml --set NNODES=4\n"
     "  moesim import torchtitan llama3_70b.toml --hardware h100-sxm --gpus 256 --out my-run.json\n"
     "  moesim import deepspeed ds_config.json --into my-run.json     that run with ZeRO and batches as there\n"
     "  moesim plan --launch megatron request.json | moesim import megatron -                               the same "
     "scenario again\n"
     "  moesim import slurm-topology /etc/slurm/topology.conf $SLURM_JOB_NODELIST --hardware h100-sxm     leaves, pods "
     "and where the job sits\n"
     "  moesim import peft adapter_config.json --into my-run.json --out tuned.json     a run with adapters\n"
     "  moesim import log train.log --hardware h100-sxm --out my-run.json     step time, memory, and the scenario "
     "where "
     "the log prints its arguments\n"
     "  moesim import nccl-tests --hardware h100-sxm all_reduce.log alltoall.log --out my-cluster.json\n"
     "  moesim import kineto rank0.json.gz                                    kernels by class and stream, from a "
     "profile of PyTorch\n"
     "  moesim import kineto --scenario my-run.json --tables tables rank0.json.gz     products without recorded "
     "shapes, "
     "for moesim fit\n"
     "  moesim import nsys profile.sqlite                                     of nsys export --type sqlite; rocprof "
     "and msprof: their tables\n"
     "  moesim import goal step.goal --hardware h100-sxm                      how long a GOAL schedule takes there\n"
     "\nNothing of a script is run: variables, arrays, conditions on strings and numbers are read, the rest is skipped "
     "and said so. Arguments that "
     "mean nothing to a prediction are listed on standard error; what cannot be represented is an error that names it. "
     "docs/launch.md has the details.\n",
     ms_cli_import},
    {"diff", "A B", "where two profiles of a step differ: each a scenario, a trace or a saved result",
     "  moesim diff my-run.json rank0.json.gz           predicted beside measured, the costliest difference first\n"
     "  moesim diff before.json after.json              two scenarios, kernel class by kernel class\n"
     "  moesim diff --stage 3 my-run.json saved.json    saved: what run --json or import kineto --json printed\n",
     ms_cli_diff, TRUE},
    {"anchor", "SCENARIO [TRACE]… | --evaluate DIR…",
     "a machine file that holds what runs and profiles of your own say: later predictions start from them",
     "  moesim anchor my-run.json other-run.json --out my-cluster.json       scenarios with `measured`\n"
     "  moesim anchor my-run.json rank0.json.gz --out my-cluster.json        and a profile of that run\n"
     "  moesim plan --model llama3-70b --hardware ./my-cluster.json --gpus 64\n"
     "  moesim anchor --evaluate scenarios/published                         what is an anchor worth?\n"
     "\nOf a log moesim import log makes a scenario with `measured`; of logs of benchmarks moesim import nccl-tests a "
     "machine to start from (--hardware).\n",
     ms_cli_anchor, TRUE},
    {"init", "cluster|model", "a machine or a model of your own: what differs from a known one, asked or given",
     "  moesim init cluster                                at a terminal: questions, with what this node says of "
     "itself\n"
     "  moesim init cluster --yes --out my-cluster.json    no questions\n"
     "  moesim init cluster --like h100-sxm --set nic_Bps=200Gb/s --set gpus_per_node=4 --yes\n"
     "  moesim init model --like qwen3-30b-a3b --set num_layers=36 --yes --out my-model.json\n"
     "\nGPUs, power limit and adapters are read from nvidia-smi or rocm-smi, ibstat and lscpu, where these are there. "
     "Of what is written each figure says where it comes from; all others stay those of the known machine.\n",
     ms_cli_init},
    {"schema", "[KIND]", "keys, types, ranges and units of every file",
     "  moesim schema\n"
     "  moesim schema layout\n",
     ms_cli_schema},
    {NULL}};

static void print_start(void) {
  fputs("moesim predicts how a training run of a mixture-of-experts or dense model performs, and plans its\nlayout.\n\n"
        "Start here:\n"
        "  moesim plan --model qwen3-30b-a3b --hardware h100-sxm --gpus 64   find the best layout\n"
        "  moesim plan scenarios/plan-deepseek-v3-gb200-256.json    the same with all choices in a file\n"
        "  moesim run scenarios/run-deepseek-v3-gb200-256.json      predict one run\n"
        "  moesim whatif --base RUN.json --set hardware.nic_Bps=200Gb/s    the same with another network\n"
        "  moesim show model deepseek-v3                            look at what it knows\n"
        "  moesim --help                                            all verbs\n",
        stdout);
}

static int unknown_verb(const char *name) {
  g_autoptr(GPtrArray) known = g_ptr_array_new();
  for (const MsVerb *verb = verbs; verb->name; verb++) g_ptr_array_add(known, (gpointer)verb->name);
  g_ptr_array_add(known, NULL);
  const char *near = ms_nearest(name, (const char *const *)known->pdata);
  const char *kind = name[0] == '-' ? "option" : "verb";
  if (near) fprintf(stderr, "moesim: unknown %s '%s', did you mean '%s'?\n", kind, name, near);
  else fprintf(stderr, "moesim: unknown %s '%s'; `moesim --help` lists the verbs\n", kind, name);
  return MS_ERROR_USAGE;
}

static int help_completion(const char *shell) {
  char *script = shell ? ms_cli_completion(shell) : NULL;
  if (script) ms_cli_print_file(script);
  else fprintf(stderr, "moesim: --completion: for which shell? bash, zsh or fish\n");
  return script ? 0 : MS_ERROR_USAGE;
}

static int help(int argc, char **argv) {
  if (argc < 2) {
    ms_cli_print(ms_cli_help_all());
    return 0;
  }
  if (g_str_equal(argv[1], "--man")) {
    ms_cli_print_file(ms_cli_man_page());
    return 0;
  }
  if (g_str_equal(argv[1], "--completion")) return help_completion(argc > 2 ? argv[2] : NULL);
  const MsVerb *verb = ms_cli_verb(argv[1]);
  if (!verb) return unknown_verb(argv[1]);
  char dash[] = "--help", *args[] = {argv[1], dash, NULL};
  return verb->run(2, args);
}

static int dispatch(int argc, char **argv) {
  const char *name = argc > 0 ? argv[0] : "";
  if (argc == 0) {
    print_start();
    return 0;
  }
  if (g_str_equal(name, "--help") || g_str_equal(name, "-h")) return help(1, argv);
  if (g_str_equal(name, "help")) return help(argc, argv);
  if (g_str_equal(name, "--version")) {
    puts("moesim " MS_VERSION);
    return 0;
  }
  const MsVerb *verb = ms_cli_verb(name);
  if (!verb) return unknown_verb(name);
  if (verb->here && !verb->here()) return ms_cli_hand_over(argv - 1);
  int status = verb->run(argc, argv);
  if (status == 0 || status == MS_ERROR_NOTHING) ms_cli_say_stopped(NULL);
  return status;
}

/* Simulations take large arrays and give them back thousands of times: kept, they are not cleared anew by the kernel.
 */
static void keep_memory(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

/* A standard stream that the caller closed, so that no file of ours gets its number: using it stays an error. */
static void hold_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

int main(int argc, char **argv) {
  hold_standard_streams();
  keep_memory();
  gsl_set_error_handler_off(); /* its default aborts; we check every status */
  signal(SIGPIPE, SIG_IGN);    /* a closed pipe is an I/O error with its own exit status */
  signal(SIGXFSZ, SIG_IGN);    /* so is a file that may not grow */
  ms_verbs = verbs;
  GError *error = NULL;
  if (!ms_vector_check(&error)) return ms_cli_fail(error);
  int status = dispatch(argc - 1, argv + 1);
  if (ms_flush_stdout(&error)) return status;
  if (!ms_stdout_abandoned() && status != MS_ERROR_ENV) return ms_cli_fail(error); /* a verb that saw it has said it */
  g_error_free(error); /* who left `moesim ... | head` early knows */
  return MS_ERROR_ENV;
}
