#include "lib/cli.h"
#include "lib/close.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>

static char *program, *folder;

void ms_cli_begin(const char *argv0) {
  g_autofree char *here = g_path_get_dirname(argv0);
  program = g_build_filename(here, "..", "moesim", NULL);
  folder = g_dir_make_tmp("moesim-cli-XXXXXX", NULL);
}

void ms_cli_end(void) {
  if (g_rmdir(folder) != 0) print_message("files are left in %s\n", folder);
  g_free(folder), g_free(program);
}

/* `progress_s` NULL: as the environment says. */
static GSubprocess *start(const char *const *argv, const char *progress_s) {
  g_autoptr(GError) error = NULL;
  g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(
      G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE);
  if (progress_s) g_subprocess_launcher_setenv(launcher, "MOESIM_PROGRESS_S", progress_s, TRUE);
  GPtrArray *all = g_ptr_array_new();
  g_ptr_array_add(all, program);
  for (int i = 0; argv[i]; i++) g_ptr_array_add(all, (char *)argv[i]);
  g_ptr_array_add(all, NULL);
  GSubprocess *child = g_subprocess_launcher_spawnv(launcher, (const char *const *)all->pdata, &error);
  g_ptr_array_free(all, TRUE);
  if (!child) fail_msg("%s", error->message);
  return child;
}

static MsCliRun finish(GSubprocess *child, const char *input) {
  MsCliRun r = {.status = -1};
  g_autoptr(GError) error = NULL;
  if (!g_subprocess_communicate_utf8(child, input, NULL, &r.out, &r.err, &error)) fail_msg("%s", error->message);
  r.status =
      g_subprocess_get_if_exited(child) ? g_subprocess_get_exit_status(child) : 1000 + g_subprocess_get_term_sig(child);
  return r;
}

MsCliRun ms_cli_run(const char *const *argv, const char *input) {
  g_autoptr(GSubprocess) child = start(argv, NULL);
  return finish(child, input);
}

MsCliRun ms_cli_stop(const char *const *argv, const char *told, int signal) {
  g_autoptr(GSubprocess) child = start(argv, "0");
  g_autoptr(GString) line = g_string_new(NULL);
  char byte;
  while (!strstr(line->str, told)) {
    g_autoptr(GError) error = NULL;
    if (g_input_stream_read(g_subprocess_get_stderr_pipe(child), &byte, 1, NULL, &error) != 1)
      fail_msg("it ended before it told of \"%s\": %s", told, line->str);
    g_string_append_c(line, byte);
  }
  g_subprocess_send_signal(child, signal);
  return finish(child, "");
}

void ms_cli_run_clear(MsCliRun *r) {
  g_clear_pointer(&r->out, g_free);
  g_clear_pointer(&r->err, g_free);
}

void ms_cli_expect(const MsCliRun *r, int status, const char *what) {
  if (r->status != status) fail_msg("%s: exit %d, not %d; stderr: %s", what, r->status, status, r->err);
}

MsJson *ms_cli_json(const char *text, const char *what) {
  GError *error = NULL;
  MsJson *doc = ms_json_parse(text, -1, what, &error);
  if (!doc) fail_msg("%s: %s", what, error->message);
  return doc;
}

JsonNode *ms_cli_at(JsonNode *node, const char *path) {
  g_auto(GStrv) part = g_strsplit_set(path, ".[]", -1);
  for (int i = 0; part[i]; i++) {
    if (!*part[i]) continue;
    if (JSON_NODE_HOLDS_ARRAY(node)) {
      guint k = (guint)atoi(part[i]);
      if (k >= json_array_get_length(json_node_get_array(node))) fail_msg("%s is too short", path);
      node = json_array_get_element(json_node_get_array(node), k);
    } else {
      node = JSON_NODE_HOLDS_OBJECT(node) ? json_object_get_member(json_node_get_object(node), part[i]) : NULL;
    }
    if (!node) fail_msg("no key %s", path);
  }
  return node;
}

char *ms_cli_shipped(const char *name) { return g_build_filename(MS_SOURCE_DIR "/scenarios", name, NULL); }

char *ms_cli_path(const char *name) { return g_build_filename(folder, name, NULL); }

char *ms_cli_written(const char *name, const char *text) {
  char *file = ms_cli_path(name);
  assert_true(g_file_set_contents(file, text, -1, NULL));
  return file;
}
