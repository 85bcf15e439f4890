#include "study/advice.h"

#include <math.h>

#include "base/text.h"
#include "study/parts.h"

static const MsPick *of_kind(const MsPicks *p, MsPickKind kind) {
  for (int i = 1; i < p->n; i++)
    if (p->pick[i].kinds & (1u << kind)) return &p->pick[i];
  return NULL;
}

static int number_of(const MsPicks *p, const MsPick *pick) { return (int)(pick - p->pick) + 1; }

/* "costs 2.8 %", "is 1.2 % faster" */
static const char *price(double slower, char *buf) {
  g_snprintf(buf, MS_TEXT, slower >= 0 ? "costs %.1f %% of the step" : "is %.1f %% faster", 100 * fabs(slower));
  return buf;
}

static void say(GPtrArray *out, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void say(GPtrArray *out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(out, g_strdup_vprintf(format, args));
  va_end(args);
}

static void say_budget(GPtrArray *out, const MsBudget *b) {
  char tokens[MS_TEXT];
  if (!(b->days > 0)) return;
  ms_text_tokens(b->tokens, tokens);
  if (b->deadline_days > 0)
    say(out, "the %s tokens take %.1f of the %.4g days%s", tokens, b->days, b->deadline_days,
        b->late ? ": LATE, so give more GPUs (--gpus 256..2048 finds how many)" : "");
  else say(out, "the %s tokens take %.1f days", tokens, b->days);
}

void ms_picks_advise(MsPicks *p) {
  char time[MS_TEXT], band[MS_TEXT], memory[MS_TEXT], cost[MS_TEXT];
  GPtrArray *out = g_ptr_array_new();
  const MsResult *first = p->pick[0].entry->result;
  say(out, "take 1, %s a step +-%s, %.0f tokens/s/GPU%s", ms_text_seconds(first->step_time_s, time),
      ms_text_percent(first->band, band), first->tokens_per_s_per_gpu,
      p->all_tied ? "; all choices are within noise of it, so that any will do" : "");
  say_budget(out, &p->pick[0].budget);
  const MsPick *spare = of_kind(p, MS_PICK_MEMORY), *simple = of_kind(p, MS_PICK_SIMPLEST);
  if (spare)
    say(out, "%.0f %% of the memory is used: %d frees %s of each GPU, and %s",
        100 * ms_device_B(first) / first->capacity_B, number_of(p, spare), ms_text_bytes(spare->more_free_B, memory),
        price(spare->slower, cost));
  if (simple && simple != spare)
    say(out, "%d needs less to be set up, and %s%s", number_of(p, simple), price(simple->slower, cost),
        simple->tied ? ", which is noise" : "");
  p->n_advice = (int)out->len;
  p->advice = (char **)g_ptr_array_free(out, FALSE);
}
