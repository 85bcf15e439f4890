/* src/launch/around.c - what stands around a form and starts it on all nodes: Slurm, Kubernetes, SkyPilot.
 *
 * Facts: sbatch(1), srun(1), scontrol(1) of Slurm 23.11 and 24.05; kubeflow.org/v1 PyTorchJob (training-operator 1.8),
 * jobset.x-k8s.io/v1alpha2, batch.volcano.sh/v1alpha1, the task YAML of SkyPilot 0.8. Each gives the form NODE_RANK,
 * MASTER_ADDR and MASTER_PORT. */
#include "describe/vendor.h"
#include "launch/form.h"

#include <string.h>

enum { MOST_NAME = 40 }; /* Kubernetes makes names of hosts of it */

/* --- Slurm --- */
static void append_sbatch(GString *out, const MsFormContext *c, int restarts) {
  const MsScenario *s = c->scenario;
  g_autofree char *job = ms_plain_name(*s->name ? s->name : "run");
  g_string_append_printf(out,
                         "#SBATCH --job-name=%s\n#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=1\n#SBATCH "
                         "--gpus-per-node=%d\n#SBATCH --exclusive\n",
                         job, c->nodes, c->gpus_per_node);
  int segment = s->layout.ep * s->layout.etp /
                c->gpus_per_node; /* nodes that share a scale-up domain, as that file counts them */
  if (c->gpus_per_node < s->hardware->nvlink_domain_gpus && segment > 1 &&
      s->layout.ep * s->layout.etp <= s->hardware->nvlink_domain_gpus)
    g_string_append_printf(out,
                           "# With Slurm 24.05 or newer and topology/block add --segment=%d to sbatch: nodes that "
                           "share a scale-up domain.\n",
                           segment);
  if (restarts > 0) g_string_append(out, "#SBATCH --requeue\n#SBATCH --open-mode=append\n");
  g_string_append(out, "#SBATCH --time=01:00:00\n#SBATCH --output=%x-%j.log\n");
}

/* A failed step puts the job back into the queue; --load and --save of the arguments say where it goes on from. */
static void append_restarts(GString *out, int restarts) {
  g_string_append_printf(out,
                         "status=0\nsrun --kill-on-bad-exit=1 bash -c on_node || status=$?\n"
                         "if [ \"$status\" -ne 0 ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt %d ]; then\n"
                         "  echo \"restart $((${SLURM_RESTART_COUNT:-0} + 1)) of %d after status $status\"\n"
                         "  scontrol requeue \"$SLURM_JOB_ID\"\nfi\n(exit \"$status\")\n",
                         restarts, restarts);
}

static char *around_slurm(const MsFormContext *c, const GString *head, int restarts) {
  GString *out = g_string_new("#!/bin/bash\n");
  append_sbatch(out, c, restarts);
  g_string_append_len(out, head->str, (gssize)head->len);
  g_string_append(out,
                  "# Account, partition and container are yours to add, the time limit is a placeholder.\nset -eu\n");
  g_string_append_len(out, c->text->once->str, (gssize)c->text->once->len);
  g_string_append(out, "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\nexport "
                       "MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}\n"
                       "on_node() {\nexport NODE_RANK=$SLURM_NODEID\n");
  g_string_append_len(out, c->text->per_node->str, (gssize)c->text->per_node->len);
  g_string_append(out, "}\nexport -f on_node\n");
  if (restarts > 0) append_restarts(out, restarts);
  else g_string_append(out, "srun --kill-on-bad-exit=1 bash -c on_node\n");
  return g_string_free(out, FALSE);
}

/* --- YAML --- */
/* Lines of a block scalar, `indent` blanks before each. */
static void append_block(GString *out, const char *text, int indent) {
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (int i = 0; lines[i]; i++)
    if (*lines[i]) g_string_append_printf(out, "%*s%s\n", indent, "", lines[i]);
}

/* A label of RFC 1123: small letters, digits, "-". (transfer full) */
static char *label_of(const char *name) {
  g_autofree char *lower = g_ascii_strdown(name, MOST_NAME);
  g_strcanon(lower, "abcdefghijklmnopqrstuvwxyz0123456789-", '-');
  g_autofree char *label = g_strconcat(g_ascii_isalpha(*lower) ? "" : "run-", lower, NULL);
  for (gsize n = strlen(label); n > 0 && label[n - 1] == '-'; n--) label[n - 1] = '\0';
  return g_steal_pointer(&label);
}

/* The pod template of one node, `indent` blanks deep. */
static void append_pod(GString *out, const MsFormContext *c, const char *place, const char *container, int indent) {
  g_autoptr(GString) pod = g_string_new(NULL), script = g_string_new("set -eu\n");
  g_string_append(script, place);
  g_string_append_len(script, c->text->once->str, (gssize)c->text->once->len);
  g_string_append_len(script, c->text->per_node->str, (gssize)c->text->per_node->len);
  g_string_append_printf(pod,
                         "spec:\n  restartPolicy: Never\n  containers:\n  - name: %s\n    image: IMAGE  # yours: "
                         "PyTorch, Megatron-LM at MEGATRON_PATH\n    command: [bash, -c]\n    args:\n    - |\n",
                         container);
  append_block(pod, script->str, 6);
  g_string_append_printf(pod,
                         "    resources:\n      limits:\n        %s: %d  # and the adapters, as your cluster names "
                         "them\n    volumeMounts:\n    - name: shm\n      mountPath: /dev/shm\n  volumes:\n  - name: "
                         "shm\n    emptyDir:\n      medium: Memory\n",
                         ms_vendor(c->scenario->hardware)->resource, c->gpus_per_node);
  append_block(out, pod->str, indent);
}

static void append_kind(GString *out, const char *api, const char *kind, const char *name) {
  g_string_append_printf(out, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\nspec:\n", api, kind, name);
}

/* The operator sets MASTER_ADDR, MASTER_PORT and RANK, which is the node's before torchrun starts its processes. */
static char *around_pytorchjob(const MsFormContext *c, const GString *head, int restarts) {
  GString *out = g_string_new_len(head->str, (gssize)head->len);
  g_autofree char *name = label_of(c->scenario->name);
  append_kind(out, "kubeflow.org/v1", "PyTorchJob", name);
  g_string_append_printf(
      out, "  runPolicy:\n    backoffLimit: %d\n    cleanPodPolicy: Running\n  pytorchReplicaSpecs:\n", restarts);
  for (int part = 0; part < 2; part++) {
    int replicas = part ? c->nodes - 1 : 1;
    if (replicas == 0) continue;
    g_string_append_printf(out, "    %s:\n      replicas: %d\n      restartPolicy: %s\n      template:\n",
                           part ? "Worker" : "Master", replicas, restarts > 0 ? "OnFailure" : "Never");
    append_pod(out, c, "export NODE_RANK=$RANK\n", "pytorch", 8);
  }
  return g_string_free(out, FALSE);
}

static char *around_jobset(const MsFormContext *c, const GString *head, int restarts) {
  GString *out = g_string_new_len(head->str, (gssize)head->len);
  g_autofree char *name = label_of(c->scenario->name),
                  *place = g_strdup_printf("export NODE_RANK=$JOB_COMPLETION_INDEX MASTER_ADDR=%s-node-0-0.%s "
                                           "MASTER_PORT=29500\n",
                                           name, name);
  append_kind(out, "jobset.x-k8s.io/v1alpha2", "JobSet", name);
  g_string_append_printf(out,
                         "  failurePolicy:\n    maxRestarts: %d\n  replicatedJobs:\n  - name: node\n    replicas: 1\n "
                         "   template:\n      spec:\n        completionMode: Indexed\n        completions: %d\n        "
                         "parallelism: %d\n        backoffLimit: 0\n        template:\n",
                         restarts, c->nodes, c->nodes);
  append_pod(out, c, place, "node", 10);
  return g_string_free(out, FALSE);
}

static char *around_volcano(const MsFormContext *c, const GString *head, int restarts) {
  GString *out = g_string_new_len(head->str, (gssize)head->len);
  g_autofree char *name = label_of(c->scenario->name),
                  *place = g_strdup_printf("export NODE_RANK=$VC_TASK_INDEX MASTER_ADDR=%s-node-0.%s "
                                           "MASTER_PORT=29500\n",
                                           name, name);
  append_kind(out, "batch.volcano.sh/v1alpha1", "Job", name);
  g_string_append_printf(out,
                         "  schedulerName: volcano\n  minAvailable: %d\n  maxRetry: %d\n  plugins:\n    env: []\n    "
                         "svc: []\n  policies:\n  - event: PodFailed\n    action: %s\n  tasks:\n  - name: node\n    "
                         "replicas: %d\n    template:\n",
                         c->nodes, restarts, restarts > 0 ? "RestartJob" : "AbortJob", c->nodes);
  append_pod(out, c, place, "node", 6);
  return g_string_free(out, FALSE);
}

/* --- SkyPilot --- */
/* "H100" of h100-sxm, "A100-80GB" of a100-sxm-80g; a placeholder for what SkyPilot's catalog does not have. (transfer
 * full) */
static char *sky_accelerator(const MsHardware *h) {
  static const char *const offered[] = {"A100", "B200", "B300", "GB200", "H100", "H200", "L40S", "MI300X", NULL};
  g_autofree char *first = g_strndup(h->name, strcspn(h->name, "-")), *upper = g_ascii_strup(first, -1);
  if (!ms_vendor(h) || !g_strv_contains(offered, upper)) return g_strdup("ACCELERATOR");
  gboolean large = strcmp(upper, "A100") == 0 && strstr(h->name, "80g");
  return g_strdup(large ? "A100-80GB" : upper);
}

static char *around_skypilot(const MsFormContext *c, const GString *head, int restarts) {
  GString *out = g_string_new_len(head->str, (gssize)head->len);
  g_autofree char *name = label_of(c->scenario->name), *gpu = sky_accelerator(c->scenario->hardware);
  g_string_append_printf(out,
                         "name: %s\nnum_nodes: %d\nresources:\n  accelerators: %s:%d  # as `sky show-gpus` names "
                         "it\n  network_tier: best\n",
                         name, c->nodes, gpu, c->gpus_per_node);
  if (restarts > 0) g_string_append_printf(out, "  job_recovery:\n    max_restarts_on_errors: %d\n", restarts);
  g_string_append(out, "setup: |\n  # yours: PyTorch, Megatron-LM at MEGATRON_PATH\nrun: |\n");
  g_autoptr(GString) script = g_string_new(
      "set -eu\nMASTER_ADDR=$(echo \"$SKYPILOT_NODE_IPS\" | head -n 1)\nexport MASTER_ADDR MASTER_PORT=29500 "
      "NODE_RANK=$SKYPILOT_NODE_RANK\n");
  g_string_append_len(script, c->text->once->str, (gssize)c->text->once->len);
  g_string_append_len(script, c->text->per_node->str, (gssize)c->text->per_node->len);
  append_block(out, script->str, 2);
  return g_string_free(out, FALSE);
}

/* --- the choice --- */
gboolean ms_around_check(const MsScenario *s, MsLaunch launch, GError **error) {
  gboolean kubernetes =
      launch.around == MS_AROUND_PYTORCHJOB || launch.around == MS_AROUND_JOBSET || launch.around == MS_AROUND_VOLCANO;
  const MsVendorRow *vendor = ms_vendor(s->hardware);
  if (kubernetes && !(vendor && vendor->resource))
    return ms_refuse_key(s, error, "hardware.vendor",
                         "is %s: Kubernetes needs the name of its resource; NVIDIA, AMD, Moore Threads and Huawei are "
                         "known",
                         s->hardware->vendor ? s->hardware->vendor : "not said");
  return TRUE;
}

char *ms_around(const MsFormContext *c, MsLaunch launch, const GString *head) {
  static char *(*const makers[])(const MsFormContext *, const GString *,
                                 int) = {[MS_AROUND_SLURM] = around_slurm,
                                         [MS_AROUND_PYTORCHJOB] = around_pytorchjob,
                                         [MS_AROUND_JOBSET] = around_jobset,
                                         [MS_AROUND_VOLCANO] = around_volcano,
                                         [MS_AROUND_SKYPILOT] = around_skypilot};
  return makers[launch.around](c, head, launch.restarts);
}
