/* src/serve/serve.c - requests in, text out. The only file that knows libsoup: part of moesim-all. */
#include "serve/serve.h"

#include <gio/gio.h>
#include <glib-unix.h>
#include <libsoup/soup.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "base/figure.h"
#include "launch/launch.h"
#include "report/page.h"
#include "serve/guard.h"
#include "serve/worker.h"
#include "study/ask.h"

enum {
  BODY_BYTES = 128 * 1024,
  CONNECTIONS = 256,
  LOOK_MS = 250, /* how often it looks whether somebody still waits */
  LEASE_S = 5,   /* a search that nobody has asked about for so long is stopped */
};
static const MsWorkerLimits worker_limits = {
    .running = 2, .waiting = 128, .kept = 192, .memory_B = 3ull << 30, .answer_B = 48u << 20};

typedef struct {
  GMainLoop *loop;
  SoupServer *soup;
  GSocketService *listener;
  MsWorkers *workers;          /* NULL: this ends */
  GPtrArray *watches;          /* Watch, not owned */
  char *page, *choices, *host; /* host: "127.0.0.1:8080" */
  const char *const *allowed;  /* MsServeOptions.allow_host */
  guint connections, idle_s;
} Server;

/* --- answers --------------------------------------------------------------------------------------------------- */
/* What the page itself says, and what only a header can. */
static const char *policy(void) {
  static gsize text;
  if (g_once_init_enter(&text)) {
    g_autofree char *of_page = ms_page_policy(TRUE);
    g_once_init_leave(&text, (gsize)g_strconcat(of_page, "; frame-ancestors 'none'", NULL));
  }
  return (const char *)text;
}

static void answer(SoupServerMessage *msg, guint status, const char *type, const char *text) {
  SoupMessageHeaders *headers = soup_server_message_get_response_headers(msg);
  soup_message_headers_replace(headers, "Content-Security-Policy", policy());
  soup_message_headers_replace(headers, "X-Content-Type-Options", "nosniff");
  soup_message_headers_replace(headers, "Referrer-Policy", "no-referrer");
  soup_message_headers_replace(headers, "Cache-Control", "no-store");
  soup_message_headers_replace(headers, "Connection", "close"); /* one answer each */
  soup_server_message_set_status(msg, status, NULL);
  soup_server_message_set_response(msg, type, SOUP_MEMORY_COPY, text, strlen(text));
}

static void answer_json(SoupServerMessage *msg, guint status, const char *json) {
  answer(msg, status, "application/json", json);
}

static const MsFigures error_figures =
    MS_FIGURE_UNNAMED({.key = "error", .type = MS_FIGURE_STRING, .unit = "", .doc = "what is wrong"});

static void answer_error(SoupServerMessage *msg, guint status, const char *message) {
  g_autofree char *json = ms_figures_json(&error_figures, &message);
  if (status == SOUP_STATUS_SERVICE_UNAVAILABLE)
    soup_message_headers_replace(soup_server_message_get_response_headers(msg), "Retry-After", "5");
  answer_json(msg, status, json);
}

/* What a worker said on standard error, as one line without the program's name. */
static void answer_failure(SoupServerMessage *msg, MsWorker *worker, gboolean tried) {
  g_autofree char *text = g_strdup(ms_worker_message(worker));
  char *line = g_str_has_prefix(text, "moesim: ") ? text + strlen("moesim: ") : text;
  g_strdelimit(g_strchomp(line), "\n", ' ');
  int status = ms_worker_status(worker);
  if (ms_worker_state(worker) == MS_WORKER_STOPPED)
    answer_error(msg, SOUP_STATUS_SERVICE_UNAVAILABLE, "stopped: it took too long");
  else if (status == MS_ERROR_INPUT || status == MS_ERROR_USAGE)
    answer_error(msg, tried ? SOUP_STATUS_OK : SOUP_STATUS_BAD_REQUEST, line);
  else
    answer_error(msg, SOUP_STATUS_INTERNAL_SERVER_ERROR,
                 *line ? line : "it ended without an answer: too large for this server");
}

/* --- a body ---------------------------------------------------------------------------------------------------- */
typedef struct { /* of one message */
  GString *body;
  gboolean refused;
  guint timer;
} Incoming;

static void incoming_free(gpointer data) {
  Incoming *in = data;
  if (in->timer) g_source_remove(in->timer);
  g_string_free(in->body, TRUE);
  g_free(in);
}
static Incoming *incoming_of(SoupServerMessage *msg) { return g_object_get_data(G_OBJECT(msg), "incoming"); }

static GSocket *socket_of(SoupServerMessage *msg) { /* see incoming() */
  return g_object_get_data(G_OBJECT(soup_server_message_get_remote_address(msg)), "socket");
}

static void hang_up(SoupServerMessage *msg) {
  GSocket *socket = socket_of(msg);
  if (socket) g_socket_shutdown(socket, TRUE, TRUE, NULL);
}

/* The other side has closed the connection, or reset it, whatever it sent before. libsoup does not read while an answer
 * is being worked out. */
static gboolean has_hung_up(SoupServerMessage *msg) {
  GSocket *socket = socket_of(msg);
  struct pollfd one = {.fd = socket ? g_socket_get_fd(socket) : -1, .events = POLLRDHUP};
  return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void got_chunk(SoupServerMessage *msg, GBytes *chunk, gpointer user) {
  (void)user;
  Incoming *in = incoming_of(msg);
  gsize n = g_bytes_get_size(chunk);
  if (in->refused) return;
  if (in->body->len + n > BODY_BYTES) { /* more than announced, or not announced at all */
    in->refused = TRUE;
    hang_up(msg);
    return;
  }
  g_string_append_len(in->body, g_bytes_get_data(chunk, NULL), (gssize)n);
}

static gboolean too_slow(gpointer user) {
  SoupServerMessage *msg = user;
  incoming_of(msg)->timer = 0;
  hang_up(msg);
  return G_SOURCE_REMOVE;
}

static void got_body(SoupServerMessage *msg, gpointer user) {
  (void)user;
  Incoming *in = incoming_of(msg);
  if (in->timer) g_source_remove(in->timer);
  in->timer = 0;
}

static void request_started(SoupServer *soup, SoupServerMessage *msg, gpointer user) {
  (void)soup;
  const Server *server = user;
  Incoming *in = g_new0(Incoming, 1);
  in->body = g_string_new(NULL);
  in->timer = g_timeout_add_seconds(server->idle_s, too_slow, msg); /* goes with the message */
  g_object_set_data_full(G_OBJECT(msg), "incoming", in, incoming_free);
  soup_message_body_set_accumulate(soup_server_message_get_request_body(msg), FALSE);
  g_signal_connect(msg, "got-chunk", G_CALLBACK(got_chunk), NULL);
  g_signal_connect(msg, "got-body", G_CALLBACK(got_body), NULL);
}

/* --- what may come in: after the headers, before the body ------------------------------------------------------ */
static void refuse(SoupServerMessage *msg, guint status, const char *why) {
  incoming_of(msg)->refused = TRUE;
  answer_error(msg, status, why);
}

/* libsoup would read a body of that length, whatever is answered. */
static void refuse_length(SoupServerMessage *msg) {
  static const char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\n"
                             "Content-Length: 58\r\n\r\n{\"error\":\"Content-Length must be a number of bytes, once\"}";
  incoming_of(msg)->refused = TRUE;
  g_autoptr(GIOStream) stream = soup_server_message_steal_connection(msg);
  g_output_stream_write_all(g_io_stream_get_output_stream(stream), text, strlen(text), NULL, NULL, NULL);
  g_io_stream_close(stream, NULL, NULL);
}

static void early(SoupServer *soup, SoupServerMessage *msg, const char *path, GHashTable *query, gpointer user) {
  (void)soup, (void)path, (void)query;
  const Server *server = user;
  SoupMessageHeaders *headers = soup_server_message_get_request_headers(msg);
  const char *method = soup_server_message_get_method(msg), *host = soup_message_headers_get_one(headers, "Host");
  const char *origin = soup_message_headers_get_one(headers, "Origin");
  if (!ms_guard_length(soup_message_headers_get_list(headers, "Content-Length"))) refuse_length(msg);
  else if (!ms_guard_host(host, server->host, server->allowed))
    refuse(msg, SOUP_STATUS_MISDIRECTED_REQUEST, "this server answers to its own address only");
  else if (origin && !ms_guard_origin(origin, host))
    refuse(msg, SOUP_STATUS_FORBIDDEN, "requests come from this server's own page only");
  else if (strcmp(method, "POST") == 0) {
    const char *type = soup_message_headers_get_content_type(headers, NULL);
    goffset length = soup_message_headers_get_content_length(headers);
    if (!type || strcmp(type, "application/json") != 0)
      refuse(msg, SOUP_STATUS_UNSUPPORTED_MEDIA_TYPE, "a body comes as application/json");
    else if (length > BODY_BYTES) refuse(msg, SOUP_STATUS_REQUEST_ENTITY_TOO_LARGE, "a body has at most 128 KiB");
  } else if (soup_message_headers_get_content_length(headers) > 0) {
    refuse(msg, SOUP_STATUS_BAD_REQUEST, "only POST has a body");
  }
}

/* The body as JSON that may be worked on; NULL after an answer. (transfer full) */
static char *checked_body(SoupServerMessage *msg) {
  g_autoptr(GError) error = NULL;
  const GString *body = incoming_of(msg)->body;
  g_autoptr(MsJson) doc = ms_json_parse(body->str, (gssize)body->len, "request", &error);
  if (doc && ms_guard_request(doc, &error)) return g_strndup(body->str, body->len);
  answer_error(msg, SOUP_STATUS_BAD_REQUEST, error->message);
  return NULL;
}

/* --- runs and launch arguments: the answer waits for the worker ------------------------------------------------ */
typedef struct {
  SoupServerMessage *msg; /* owned */
  MsWorker *worker;
  gulong finished;
  guint look;
  gboolean as_page; /* what it printed becomes a page; else it is the answer */
  gboolean tried;   /* it may be no run at all: that is an answer, {"error"}, like any other */
} Pending;

static void pending_free(Pending *p) {
  if (p->look) g_source_remove(p->look);
  g_signal_handler_disconnect(p->msg, p->finished);
  g_object_unref(p->msg);
  g_free(p);
}

static void gone_away(SoupServerMessage *msg, gpointer user) {
  (void)msg;
  Pending *p = user;
  ms_worker_abandon(p->worker);
  pending_free(p);
}

static gboolean look_for_client(gpointer user) {
  Pending *p = user;
  if (!has_hung_up(p->msg)) return G_SOURCE_CONTINUE;
  hang_up(p->msg);
  soup_server_message_unpause(p->msg); /* finds the connection closed: gone_away */
  p->look = 0;
  return G_SOURCE_REMOVE;
}

static void answer_printed(const Pending *p, const char *json) {
  if (!p->as_page) {
    answer_json(p->msg, SOUP_STATUS_OK, json);
    return;
  }
  MsPage *page = ms_page_new(NULL);
  ms_page_add_printed(page, json);
  g_autofree char *html = ms_page_take(page);
  answer(p->msg, SOUP_STATUS_OK, "text/html; charset=utf-8", html);
}

static void pending_ended(MsWorker *worker, gpointer user) {
  Pending *p = user;
  const char *text = ms_worker_answer(worker);
  if (ms_worker_state(worker) == MS_WORKER_DONE && text) answer_printed(p, text);
  else answer_failure(p->msg, worker, p->tried);
  soup_server_message_unpause(p->msg);
  pending_free(p);
}

static void work_on(Server *server, SoupServerMessage *msg, const char *const *argv, gboolean as_page, gboolean tried) {
  g_autofree char *body = checked_body(msg);
  if (!body) return;
  Pending *p = g_new0(Pending, 1);
  *p = (Pending){.msg = g_object_ref(msg), .as_page = as_page, .tried = tried};
  p->finished = g_signal_connect(msg, "finished", G_CALLBACK(gone_away), p);
  p->worker = ms_workers_start(server->workers, argv, body, pending_ended, p);
  if (p->worker) {
    soup_server_message_pause(msg);
    p->look = g_timeout_add(LOOK_MS, look_for_client, p);
    return;
  }
  answer_error(msg, SOUP_STATUS_SERVICE_UNAVAILABLE, "too many requests wait already");
  pending_free(p);
}

/* --- plans ----------------------------------------------------------------------------------------------------- */
static void start_plan(Server *server, SoupServerMessage *msg) {
  static const char *const argv[] = {"plan", "--json", "--follow", "--map", "--threads", "1", "--", "-", NULL};
  g_autofree char *body = checked_body(msg);
  if (!body) return;
  MsWorker *worker = ms_workers_start(server->workers, argv, body, NULL, NULL);
  if (!worker) {
    answer_error(msg, SOUP_STATUS_SERVICE_UNAVAILABLE, "too many requests wait already");
    return;
  }
  ms_worker_lease(worker, LEASE_S);
  g_autofree char *json = g_strdup_printf("{\"id\":\"%s\"}", ms_worker_id(worker));
  answer_json(msg, SOUP_STATUS_ACCEPTED, json);
}

static const char *state_of(const void *worker) { return ms_worker_words[ms_worker_state(worker)]; }
static const char *message_of(const void *worker) {
  const char *message = ms_worker_message(worker);
  return ms_worker_state(worker) == MS_WORKER_FAILED && !*message
             ? "it ended without an answer: too large for this server"
             : message;
}
static const MsFigures plan_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_TEXT("state", state_of, "of the search"),
                      MS_FIGURE_TEXT("message", message_of, "what it says meanwhile, or why it failed"));

/* The answer of the search follows as it is. (transfer full) */
static char *plan_text(const MsWorker *worker) {
  const char *plan = ms_worker_answer(worker);
  g_autofree char *head = g_strchomp(ms_figures_json(&plan_figures, worker));
  return g_strdup_printf("%.*s,\"plan\":%s}", (int)strlen(head) - 1, head, plan ? plan : "null");
}

typedef struct {          /* one client that watches a search */
  SoupServerMessage *msg; /* owned */
  Server *server;
  char *id;
  guint tick;
  int told; /* state and lines of what was sent last, -1: nothing */
} Watch;

static MsWorker *watched(const Watch *watch) {
  return watch->server->workers ? ms_workers_find(watch->server->workers, watch->id) : NULL;
}

/* When the last that watches a search goes, so does the search. */
static void stop_unwatched(const Watch *gone) {
  const GPtrArray *watches = gone->server->watches;
  MsWorker *worker = watched(gone);
  for (guint i = 0; i < watches->len; i++)
    if (strcmp(((const Watch *)watches->pdata[i])->id, gone->id) == 0) return;
  if (worker) ms_worker_stop(worker);
}

static void watch_free(SoupServerMessage *msg, gpointer user) {
  Watch *watch = user;
  g_ptr_array_remove(watch->server->watches, watch);
  stop_unwatched(watch);
  g_source_remove(watch->tick);
  g_signal_handlers_disconnect_by_data(msg, watch);
  g_free(watch->id);
  g_free(watch);
  g_object_unref(msg);
}

static void send_event(Watch *watch, const MsWorker *worker) {
  g_autofree char *json = plan_text(worker), *event = g_strdup_printf("data: %s\n\n", json);
  SoupMessageBody *body = soup_server_message_get_response_body(watch->msg);
  soup_message_body_append(body, SOUP_MEMORY_COPY, event, strlen(event));
  if (ms_worker_state(worker) >= MS_WORKER_DONE) soup_message_body_complete(body);
  soup_server_message_unpause(watch->msg);
}

static gboolean look_at_plan(gpointer user) {
  Watch *watch = user;
  MsWorker *worker = watched(watch);
  if (!worker || has_hung_up(watch->msg)) {
    hang_up(watch->msg);
    soup_message_body_complete(soup_server_message_get_response_body(watch->msg));
    soup_server_message_unpause(watch->msg); /* finds it closed when it writes the end: watch_free */
    return G_SOURCE_CONTINUE;
  }
  int now = (int)(ms_worker_lines(worker) << 3 | ms_worker_state(worker));
  ms_worker_lease(worker, LEASE_S);
  if (now != watch->told) {
    watch->told = now;
    send_event(watch, worker);
  }
  return G_SOURCE_CONTINUE;
}

/* The answer is written piece by piece, as long as the search goes on. */
static void watch_plan(Server *server, SoupServerMessage *msg, const MsWorker *worker) {
  answer(msg, SOUP_STATUS_OK, "text/event-stream", "");
  soup_message_headers_set_encoding(soup_server_message_get_response_headers(msg), SOUP_ENCODING_CHUNKED);
  soup_message_body_set_accumulate(soup_server_message_get_response_body(msg), FALSE);
  Watch *watch = g_new0(Watch, 1);
  *watch = (Watch){g_object_ref(msg), server, g_strdup(ms_worker_id(worker)), 0, -1};
  g_ptr_array_add(server->watches, watch);
  g_signal_connect(msg, "finished", G_CALLBACK(watch_free), watch);
  soup_server_message_pause(msg);
  watch->tick = g_timeout_add(LOOK_MS, look_at_plan, watch);
}

/* `methods` as Allow has them: "GET, HEAD". FALSE after an answer. */
static gboolean is(SoupServerMessage *msg, const char *methods) {
  g_auto(GStrv) allowed = g_strsplit(methods, ", ", -1);
  if (g_strv_contains((const char *const *)allowed, soup_server_message_get_method(msg))) return TRUE;
  g_autofree char *only = g_strdup_printf("this address takes %s", methods);
  answer_error(msg, SOUP_STATUS_METHOD_NOT_ALLOWED, only);
  soup_message_headers_replace(soup_server_message_get_response_headers(msg), "Allow", methods);
  return FALSE;
}

#define EVENTS "/events"
static void on_plan(Server *server, SoupServerMessage *msg, const char *id) {
  const char *method = soup_server_message_get_method(msg);
  gboolean events = g_str_has_suffix(id, EVENTS);
  g_autofree char *own = g_strndup(id, strlen(id) - (events ? strlen(EVENTS) : 0));
  MsWorker *worker = ms_workers_find(server->workers, own);
  if (!worker) answer_error(msg, SOUP_STATUS_NOT_FOUND, "no such plan, or it was long ago");
  else if (events && is(msg, "GET")) watch_plan(server, msg, worker);
  else if (events) return;
  else if (strcmp(method, "DELETE") == 0) {
    ms_worker_stop(worker);
    answer_json(msg, SOUP_STATUS_OK, "{}");
  } else if (is(msg, "GET, DELETE")) {
    ms_worker_lease(worker, LEASE_S);
    g_autofree char *json = plan_text(worker);
    answer_json(msg, SOUP_STATUS_OK, json);
  }
}

/* `form` NULL: that of the scenario's framework. */
static void write_launch(Server *server, SoupServerMessage *msg, const char *form) {
  const char *const own[] = {"show", "launch", "--json", "--", "-", NULL}, *const asked[] = {"show", "launch", "--form",
                                                                                             form,   "--json", "--",
                                                                                             "-",    NULL};
  if (form && !g_strv_contains(ms_launch_words, form))
    answer_error(msg, SOUP_STATUS_NOT_FOUND, "no such form of launch arguments");
  else work_on(server, msg, form ? asked : own, FALSE, FALSE);
}

/* --- requests from a few words --------------------------------------------------------------------------------- */

/* What the form says as a plan request: the same function as on the command line. */
static void write_request(SoupServerMessage *msg) {
  g_autoptr(GError) error = NULL;
  g_autofree char *body = checked_body(msg);
  if (!body) return;
  g_autoptr(MsJson) doc = ms_json_parse(body, -1, "request", &error);
  g_autofree char *text = ms_ask_document(doc, &error);
  if (text) answer_json(msg, SOUP_STATUS_OK, text);
  else answer_error(msg, SOUP_STATUS_BAD_REQUEST, error->message);
}

/* --- routes ---------------------------------------------------------------------------------------------------- */
static void route(SoupServer *soup, SoupServerMessage *msg, const char *path, GHashTable *query, gpointer user) {
  (void)soup, (void)query;
  Server *server = user;
  static const char *const run[] = {"report", "--json", "--no-validation", "--", "-", NULL}, *const fast[] = {
                                                                                                 "run",        "--json",
                                                                                                 "--fidelity", "fast",
                                                                                                 "--",         "-",
                                                                                                 NULL};
  static const char *const around[] = {"plan", "--around", "-", "--write-request", "-", "--json", NULL};
  if (incoming_of(msg)->refused) return;
  if (strcmp(path, "/") == 0) {
    if (is(msg, "GET, HEAD")) answer(msg, SOUP_STATUS_OK, "text/html; charset=utf-8", server->page);
  } else if (strcmp(path, "/api/choices") == 0) {
    if (is(msg, "GET")) answer_json(msg, SOUP_STATUS_OK, server->choices);
  } else if (strcmp(path, "/api/request") == 0) {
    if (is(msg, "POST")) write_request(msg);
  } else if (strcmp(path, "/api/plan") == 0) {
    if (is(msg, "POST")) start_plan(server, msg);
  } else if (g_str_has_prefix(path, "/api/plan/")) {
    on_plan(server, msg, path + strlen("/api/plan/"));
  } else if (strcmp(path, "/api/run") == 0) {
    if (is(msg, "POST")) work_on(server, msg, run, FALSE, FALSE);
  } else if (strcmp(path, "/api/around") == 0) {
    if (is(msg, "POST")) work_on(server, msg, around, FALSE, FALSE);
  } else if (strcmp(path, "/api/fast") == 0) {
    if (is(msg, "POST")) work_on(server, msg, fast, FALSE, TRUE);
  } else if (strcmp(path, "/api/page") == 0) {
    if (is(msg, "POST")) work_on(server, msg, run, TRUE, FALSE);
  } else if (strcmp(path, "/api/launch") == 0) {
    if (is(msg, "POST")) write_launch(server, msg, NULL);
  } else if (g_str_has_prefix(path, "/api/launch/")) {
    if (is(msg, "POST")) write_launch(server, msg, path + strlen("/api/launch/"));
  } else {
    answer_error(msg, SOUP_STATUS_NOT_FOUND, "nothing is served here");
  }
}

/* --- connections ----------------------------------------------------------------------------------------------- */
static void connection_gone(gpointer user, GObject *where) {
  (void)where;
  Server *server = user;
  if (server->connections-- == CONNECTIONS) g_socket_service_start(server->listener);
}

static gboolean incoming(GSocketService *listener, GSocketConnection *connection, GObject *source, gpointer user) {
  (void)listener, (void)source;
  Server *server = user;
  GSocket *socket = g_socket_connection_get_socket(connection);
  g_socket_set_timeout(socket, server->idle_s);
  g_autoptr(GSocketAddress) local = g_socket_connection_get_local_address(connection, NULL),
                            remote = g_socket_connection_get_remote_address(connection, NULL);
  if (remote)
    g_object_set_data_full(G_OBJECT(remote), "socket", g_object_ref(socket),
                           g_object_unref); /* libsoup keeps the address, not the socket */
  if (!local || !remote || !soup_server_accept_iostream(server->soup, G_IO_STREAM(connection), local, remote, NULL))
    return TRUE;
  if (++server->connections == CONNECTIONS)
    g_socket_service_stop(server->listener); /* the others wait in the system's queue */
  g_object_weak_ref(G_OBJECT(connection), connection_gone, server);
  return TRUE;
}

static gboolean are_names(const char *const *allowed, GError **error) {
  for (int i = 0; allowed && allowed[i]; i++)
    if (!ms_guard_is_name(allowed[i]))
      return ms_usage_error(error, "serve: --allow-host \"%s\": give a name alone, without http:// and port",
                            allowed[i]);
  return TRUE;
}

static gboolean listen_on(Server *server, const MsServeOptions *options, GError **error) {
  g_autoptr(GInetAddress) inet = g_inet_address_new_from_string(options->address);
  if (!inet)
    return ms_usage_error(error, "serve: --address %s: give a numeric address, 127.0.0.1 or ::1 for this machine alone",
                          options->address);
  g_autoptr(GSocketAddress) wanted = g_inet_socket_address_new(inet, options->port), got = NULL;
  g_autoptr(GError) why = NULL;
  g_socket_listener_set_backlog(G_SOCKET_LISTENER(server->listener), CONNECTIONS);
  if (!g_socket_listener_add_address(G_SOCKET_LISTENER(server->listener), wanted, G_SOCKET_TYPE_STREAM,
                                     G_SOCKET_PROTOCOL_TCP, NULL, &got, &why))
    return ms_error(error, MS_ERROR_ENV, "serve: %s port %u: %s", options->address, options->port, why->message);
  guint16 port = g_inet_socket_address_get_port(G_INET_SOCKET_ADDRESS(got));
  gboolean six = g_inet_address_get_family(inet) == G_SOCKET_FAMILY_IPV6;
  server->host = g_strdup_printf(six ? "[%s]:%u" : "%s:%u", options->address, port);
  return TRUE;
}

/* --- from start to end ----------------------------------------------------------------------------------------- */
static gboolean stop(gpointer user) {
  g_main_loop_quit(((Server *)user)->loop);
  return G_SOURCE_CONTINUE;
}

/* --- what the page lets choose --------------------------------------------------------------------------------- */
typedef struct {
  const char *name; /* of the data folder */
  MsHardware *machine;
} Machine;
typedef struct {
  char **models;    /* names */
  GArray *machines; /* Machine */
  guint time_s;
} Choices;

static const void *precision_at(const void *of, guint p, MsFigureCursor *room) {
  (void)room;
  if (!ms_precision_words[p]) return NULL;
  gboolean has = ms_hardware_peak_flops(((const Machine *)of)->machine, (MsPrecision)p) > 0;
  return has ? (const void *)&ms_precision_words[p] : ms_figure_skip;
}
#define NAME \
  { .key = "name", .type = MS_FIGURE_STRING, .unit = "", .doc = "of the data folder" }
static const MsFigures choices_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_STRV("models", Choices, models, MS_FIGURES(NAME)),
    MS_FIGURE_GARRAY("machines", Choices, machines, Machine,
                     MS_FIGURES(NAME, MS_FIGURE_EACH("precisions", LIST, precision_at, &ms_figure_texts,
                                                     .doc = "that it has products of"))),
    MS_FIGURE_WORD_LIST("launch_forms", ms_launch_words, "that the winner can be started in"),
    MS_FIGURE(UINT, Choices, time_s, "s", "that a search may take"));

static void clear_machine(gpointer machine) { ms_hardware_free(((Machine *)machine)->machine); }

static char *choices_json(guint time_s) {
  g_autoptr(GPtrArray) models = ms_model_names();
  g_autoptr(GPtrArray) names = ms_data_names("hardware");
  g_autoptr(GArray) machines = g_array_new(FALSE, FALSE, sizeof(Machine));
  g_array_set_clear_func(machines, clear_machine);
  for (guint i = 0; i + 1 < names->len; i++) {
    Machine one = {names->pdata[i], ms_hardware_load(names->pdata[i], NULL)};
    if (one.machine) g_array_append_val(machines, one);
  }
  return g_strchomp(ms_figures_json(&choices_figures, &(Choices){(char **)models->pdata, machines, time_s}));
}

static void server_clear(Server *server) {
  g_socket_service_stop(server->listener);
  g_socket_listener_close(G_SOCKET_LISTENER(server->listener));
  g_clear_pointer(&server->workers, ms_workers_free); /* answers those who wait, on connections still there */
  soup_server_disconnect(server->soup);
  g_ptr_array_unref(server->watches);
  g_object_unref(server->soup);
  g_object_unref(server->listener);
  g_main_loop_unref(server->loop);
  g_free(server->page);
  g_free(server->choices);
  g_free(server->host);
}

gboolean ms_serve_here(void) { return TRUE; }

gboolean ms_serve(const MsServeOptions *options, GError **error) {
  g_autofree char *own = g_file_read_link("/proc/self/exe", NULL);
  Server server = {.loop = g_main_loop_new(NULL, FALSE),
                   .listener = g_socket_service_new(),
                   .watches = g_ptr_array_new(),
                   .page = ms_page_live(),
                   .allowed = options->allow_host,
                   .choices = choices_json(options->time_s),
                   .idle_s = options->idle_s};
  MsWorkerLimits limits = worker_limits;
  limits.time_s = options->time_s;
  server.soup = soup_server_new("server-header", "moesim", NULL);
  server.workers = ms_workers_new(options->program ? options->program : own ? own : "moesim", &limits, error);
  gboolean ok = server.workers && are_names(options->allow_host, error) && listen_on(&server, options, error);
  if (ok) {
    g_signal_connect(server.soup, "request-started", G_CALLBACK(request_started), &server);
    soup_server_add_early_handler(server.soup, NULL, early, &server, NULL);
    soup_server_add_handler(server.soup, NULL, route, &server, NULL);
    g_signal_connect(server.listener, "incoming", G_CALLBACK(incoming), &server);
    guint interrupt = g_unix_signal_add(SIGINT, stop, &server), terminate = g_unix_signal_add(SIGTERM, stop, &server),
          terminal = g_unix_signal_add(SIGHUP, stop, &server); /* which was closed */
    printf("moesim serves http://%s/   (Ctrl-C ends it)\n", server.host);
    ok = ms_flush_stdout(error);
    if (ok) g_main_loop_run(server.loop);
    g_source_remove(interrupt);
    g_source_remove(terminate);
    g_source_remove(terminal);
  }
  server_clear(&server);
  return ok;
}
