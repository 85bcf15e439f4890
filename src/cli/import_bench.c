#include "cli/import.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "cli/cli.h"
#include "logs/machine.h"

static int form_of(const char *word) {
  int form = 0;
  while (strcmp(ms_bench_words[form], word) != 0) form++;
  return form;
}

static gboolean read_all(int form, const MsImportBench *o, char **files, GPtrArray *benches, GPtrArray *notes,
                         GError **error) {
  for (int i = 0; files[i]; i++) {
    g_autoptr(MsReader) reader = ms_reader_open(files[i], error);
    MsBench *bench = reader ? ms_bench_read(form, reader, files[i], o->gpus, notes, error) : NULL;
    if (!bench) return FALSE;
    g_ptr_array_add(benches, bench);
    if (o->gpus > 0 && bench->ranks == 0)
      return ms_usage_error(error, "import %s: --gpus is for logs of collectives", bench->by);
  }
  return TRUE;
}

/* Logs without their folder, so that the text does not depend on where they lie. */
static char *command_of(const char *word, const MsImportBench *o, char **files) {
  GString *text = g_string_new(NULL);
  g_string_printf(text, "moesim import %s --hardware %s", word, o->hardware);
  for (int i = 0; files[i]; i++) {
    g_autofree char *name = g_path_get_basename(files[i]);
    g_string_append_printf(text, " %s", name);
  }
  return g_string_free(text, FALSE);
}

int ms_cli_import_bench(const char *word, const MsImportBench *o, char **files) {
  GError *error = NULL;
  g_autoptr(GPtrArray) benches = g_ptr_array_new_with_free_func((GDestroyNotify)ms_bench_free),
                       notes = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *command = command_of(word, o, files), *date = ms_cli_date_of(o->date);
  int status = ms_cli_outputs(o->out);
  if (status != 0) return status;
  if (!read_all(form_of(word), o, files, benches, notes, &error)) return ms_cli_fail(error);
  const MsLogsMachine machine = {o->hardware, o->name, date, command};
  g_autofree char *text = ms_logs_machine(benches, &machine, notes, &error);
  if (!text) return ms_cli_fail(error);
  ms_cli_print_notes(notes);
  return ms_cli_write(o->out, text);
}
