#include "cli/cli.h"
#include "serve/serve.h"

int ms_cli_serve(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("serve");
  char *address = NULL, **allow = NULL;
  int port = 8080, idle_s = 20, time_s = 120, status = 0;
  const GOptionEntry entries[] = {
      {"port", 'p', 0, G_OPTION_ARG_INT, &port, "to listen on, 0 = any free one (default 8080)", "N"},
      {"address", 'a', 0, G_OPTION_ARG_STRING, &address,
       "to listen on, numeric; anything but 127.0.0.1 (default) or ::1 lets others in", "A"},
      {"allow-host", 0, 0, G_OPTION_ARG_STRING_ARRAY, &allow,
       "a name by which browsers may reach it, besides its address; may be repeated", "NAME"},
      {"idle", 0, 0, G_OPTION_ARG_INT, &idle_s, "seconds after which a connection without movement is cut (default 20)",
       "S"},
      {"time", 0, 0, G_OPTION_ARG_INT, &time_s, "seconds that one search or simulation may take (default 120)", "S"},
      {NULL}};
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    GError *error = NULL;
    g_autofree char *worker = ms_cli_beside("moesim"); /* starts faster than this one */
    MsServeOptions options = {.program = worker,
                              .address = address ? address : "127.0.0.1",
                              .port = (guint16)port,
                              .allow_host = (const char *const *)allow,
                              .idle_s = (guint)idle_s,
                              .time_s = (guint)time_s};
    if (argc > 1) status = ms_cli_usage(verb, "takes no arguments, only options");
    else if (port < 0 || port > 65535) status = ms_cli_usage(verb, "--port %d: give 0 to 65535", port);
    else if (idle_s < 1 || idle_s > 3600 || time_s < 1 || time_s > 86400)
      status = ms_cli_usage(verb, "--idle takes 1 to 3600 seconds, --time 1 to 86400");
    else if (!ms_serve(&options, &error)) status = ms_cli_fail(error);
  }
  g_free(address);
  g_strfreev(allow);
  return status;
}
