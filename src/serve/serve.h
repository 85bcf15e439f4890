/* src/serve/serve.h - the page, live: a web server for one's own machine.
 *
 *   GET    /                the page
 *   GET    /api/choices     models, machines, what the limits are
 *   POST   /api/request     {"model","hardware","gpus","precision","seq_length","global_batch_size","seq_lengths",
 *                           "global_batch_sizes","tokens","critical_batch_tokens","deadline",
 *                           "gpu_hour","max_watts","max_memory",
 *                           "lora"}: a plan request
 *                           (study/ask.h: what the command line makes of them)
 *   POST   /api/around      a scenario; the plan request of its task with the layout left open (plan --around)
 *   POST   /api/plan        a plan request, or one of several plans; 202 {"id"}. Stopped when nobody asks about it for
 *                           five seconds
 *   GET    /api/plan/ID     {"state","message","plan"}: `state` is waiting, running, done, stopped or failed,
 *                           `message` what the search says meanwhile or why it failed, `plan` null, then what was
 *                           found so far (`moesim plan --follow --json`, its share in "done"), at last everything
 *   GET    /api/plan/ID/events   the same as server-sent events, whenever there is something new; the last one when
 *                           it is over. Stopped when the client hangs up
 *   DELETE /api/plan/ID     stops it; what was found stays
 *   POST   /api/run         a scenario; the data of the page for it (report/page.h)
 *   POST   /api/fast        a scenario; `moesim run --json --fidelity fast`, which answers while something is dragged;
 *                           of what cannot run {"error"}, with 200: how far one can drag is tried out
 *   POST   /api/page        a scenario; the page of it as a file of its own
 *   POST   /api/launch/FORM a scenario; {"form","suffix","text"}: what starts it (launch/launch.h); without
 *                           /FORM in that of its framework
 *
 * The server itself only moves text: every request is worked on by a moesim of its own (worker.h) with bounded time and
 * memory, in an empty folder. Nothing is served from the file system. A request may not hold a path: models and
 * machines are named. Bodies, connections, jobs that run, wait and are kept are all bounded; what is over is refused
 * with 413, 429 or 503. A body must come as application/json and, when the browser says where from, from this server's
 * own page; the Host must be the address that is served or a name that the user allowed, so that a foreign page cannot
 * reach it through a name of its own. Work stops with the client that asked for it, and with the server. */
#ifndef MS_SERVE_SERVE_H
#define MS_SERVE_SERVE_H

#include <glib.h>

typedef struct {
  const char *address; /* numeric, "127.0.0.1" */
  guint16 port;        /* 0 = any free one */
  guint idle_s;        /* a connection on which nothing moves, and a request that does not arrive, are cut after that */
  guint time_s;        /* of one search or simulation */
  const char *const *allow_host; /* names by which it may be asked besides its address, NULL-terminated; NULL: none */
  const char *program;           /* the moesim that works on requests; NULL = this one */
} MsServeOptions;

/* Serves until SIGINT or SIGTERM; prints the address on standard output once it listens. FALSE and an MS_ERROR_ENV when
 * it cannot listen or was built without libsoup. */
gboolean ms_serve(const MsServeOptions *options, GError **error);
gboolean ms_serve_here(void); /* FALSE: moesim-all serves, this program is not linked to what it takes */

#endif
