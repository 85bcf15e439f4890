/* src/cli/beside.c - the two programs, moesim and moesim-all. */
#include <errno.h>
#include <gio/gio.h>
#include <unistd.h>

#include "cli/cli.h"

char *ms_cli_beside(const char *name) {
  static const char *const folders[] = {".", "../libexec/moesim", "../../bin"};
  g_autofree char *own = g_file_read_link("/proc/self/exe", NULL), *here = own ? g_path_get_dirname(own) : NULL;
  for (guint i = 0; here && i < G_N_ELEMENTS(folders); i++) {
    g_autofree char *found = g_build_filename(here, folders[i], name, NULL);
    if (g_file_test(found, G_FILE_TEST_IS_EXECUTABLE)) return g_canonicalize_filename(found, NULL);
  }
  return NULL;
}

int ms_cli_hand_over(char **argv) {
  g_autofree char *all = ms_cli_beside("moesim-all");
  if (all) execv(all, argv);
  return ms_cli_fail(g_error_new(MS_ERROR, MS_ERROR_ENV,
                                 "moesim-all, which has MPI and libsoup, cannot be started: %s; it belongs beside "
                                 "moesim or in libexec/moesim",
                                 all ? g_strerror(errno) : "it is not there"));
}
