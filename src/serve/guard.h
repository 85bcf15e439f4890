/* src/serve/guard.h - internal to serve/: what a request may ask for. Pure functions. */
#ifndef MS_SERVE_GUARD_H
#define MS_SERVE_GUARD_H

#include "base/json.h"

/* The Host header names what is served ("127.0.0.1:8080"), also as localhost, or is in `allowed`
 * (NULL-terminated names without port, or NULL). Another name that resolves to this address is not enough: a foreign
 * page could have made it. Where the user serves an address that is not loopback, any numeric address will do: nobody
 * can make one resolve to another. */
gboolean ms_guard_host(const char *host, const char *served, const char *const *allowed);
/* What may stand in `allowed`. */
gboolean ms_guard_is_name(const char *host);
/* An Origin header is the page of the same host. */
gboolean ms_guard_origin(const char *origin, const char *host);

/* A Content-Length, or none, is one number of bytes. */
gboolean ms_guard_length(const char *length);

/* FALSE and MS_ERROR_INPUT when a value could name a file (only "name", "doc" and what stands in "measured" and
 * "sources" are free text), when open keys of a plan request list more combinations than a server searches, or when the
 * run is larger than a server simulates. */
gboolean ms_guard_request(const MsJson *doc, GError **error);

#endif
