#include "serve/guard.h"

#include <math.h>
#include <string.h>

#define MOST_COMBINATIONS      2e5
#define MOST_GPUS              65536
#define MOST_SEQUENCES_PER_GPU 4096

/* --- who asks -------------------------------------------------------------------------------------------------- */
static gboolean is_loopback(const char *served) {
  return g_str_has_prefix(served, "127.") || g_str_has_prefix(served, "[::1]");
}

/* The host of "name:port", "1.2.3.4:port" or "[::1]:port"; the port is optional. (transfer full) */
static char *without_port(const char *host) {
  const char *end = host[0] == '[' ? strchr(host, ']') : strrchr(host, ':');
  if (host[0] == '[') return end ? g_strndup(host + 1, (gsize)(end - host - 1)) : g_strdup("");
  return end ? g_strndup(host, (gsize)(end - host)) : g_strdup(host);
}

static gboolean is_listed(const char *name, const char *const *allowed) {
  for (int i = 0; allowed && allowed[i]; i++)
    if (g_ascii_strcasecmp(allowed[i], name) == 0) return TRUE;
  return FALSE;
}

gboolean ms_guard_host(const char *host, const char *served, const char *const *allowed) {
  if (!host) return FALSE;
  if (g_ascii_strcasecmp(host, served) == 0) return TRUE;
  g_autofree char *name = without_port(host), *local = g_strconcat("localhost", strrchr(served, ':'), NULL);
  if (is_listed(name, allowed) || g_ascii_strcasecmp(host, local) == 0) return TRUE;
  return !is_loopback(served) && g_hostname_is_ip_address(name);
}

gboolean ms_guard_is_name(const char *host) {
  g_autofree char *name = without_port(host);
  return *host && strcmp(name, host) == 0 && !strpbrk(host, "/ \t@[]");
}

gboolean ms_guard_origin(const char *origin, const char *host) {
  return host && g_str_has_prefix(origin, "http://") && g_ascii_strcasecmp(origin + strlen("http://"), host) == 0;
}

gboolean ms_guard_length(const char *length) {
  enum { MOST_DIGITS = 18 };
  return !length || (*length && strlen(length) <= MOST_DIGITS && !length[strspn(length, "0123456789")]);
}

/* --- what is asked --------------------------------------------------------------------------------------------- */
/* "200Gb/s" */
static gboolean is_rate(const char *text) {
  char *unit;
  if (!g_ascii_isdigit(text[0])) return FALSE;
  g_ascii_strtod(text, &unit);
  while (*unit == ' ') unit++;
  size_t letters = strspn(unit, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
  return letters > 0 && strcmp(unit + letters, "/s") == 0;
}

static gboolean could_be_a_file(const char *text) {
  if (is_rate(text)) return FALSE;
  return strchr(text, '/') || strchr(text, '\\') || strcmp(text, "-") == 0 || strcmp(text, "..") == 0 ||
         g_str_has_suffix(text, ".json");
}

static gboolean is_free_text(const char *key) {
  static const char *const free_text[] = {"name", "doc", "measured", "sources", NULL};
  return g_strv_contains(free_text, key);
}

typedef struct {
  const MsJson *doc;
  double combinations;
  GError **error;
} Walk;

static gboolean walk(Walk *w, JsonNode *node, const char *path);

static gboolean walk_object(Walk *w, JsonObject *object, const char *path) {
  for (MsJsonMember one = ms_json_members(object); ms_json_next(&one);) {
    g_autofree char *at = *path ? g_strdup_printf("%s.%s", path, one.key) : g_strdup(one.key);
    if (!is_free_text(one.key) && !walk(w, one.value, at)) return FALSE;
  }
  return TRUE;
}

static gboolean walk_array(Walk *w, JsonArray *array, const char *path) {
  guint n = json_array_get_length(array);
  w->combinations *= MAX(n, 1);
  for (guint i = 0; i < n; i++) {
    g_autofree char *at = g_strdup_printf("%s[%u]", path, i);
    if (!walk(w, json_array_get_element(array, i), at)) return FALSE;
  }
  return TRUE;
}

static double number(JsonObject *object, const char *key) { /* NaN when there is none */
  return ms_json_number(ms_json_member(object, key));
}

static gboolean walk(Walk *w, JsonNode *node, const char *path) {
  if (JSON_NODE_HOLDS_ARRAY(node)) return walk_array(w, json_node_get_array(node), path);
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *object = json_node_get_object(node);
    double from = number(object, "from"), to = number(object, "to");
    if (to > from) w->combinations *= to - from + 1;
    return walk_object(w, object, path);
  }
  const char *text = ms_json_string(node);
  return !text || !could_be_a_file(text) ||
         ms_json_error(w->doc, path, w->error, "a server reads no files: name a model or a machine that it has");
}

gboolean ms_guard_request(const MsJson *doc, GError **error) {
  Walk w = {doc, 1, error};
  JsonNode *root = ms_json_root(doc);
  if (!JSON_NODE_HOLDS_OBJECT(root)) return ms_json_error(doc, "", error, "must be one JSON object");
  if (!walk(&w, root, "")) return FALSE;
  if (w.combinations > MOST_COMBINATIONS)
    return ms_json_error(doc, "", error,
                         "lists %.3g combinations, a server searches at most %.3g; moesim plan takes more",
                         w.combinations, MOST_COMBINATIONS);
  JsonObject *object = json_node_get_object(root);
  double gpus = number(object, "gpus"),
         batch = number(ms_json_object(ms_json_member(object, "training")), "global_batch_size");
  if (gpus > MOST_GPUS) return ms_json_error(doc, "gpus", error, "a server takes at most %d", MOST_GPUS);
  if (batch > MOST_SEQUENCES_PER_GPU * gpus)
    return ms_json_error(doc, "training.global_batch_size", error, "a server takes at most %d sequences per GPU",
                         MOST_SEQUENCES_PER_GPU);
  return TRUE;
}
