/* src/serve/absent.c - serve.h in a program that is not linked to libsoup. MS_HAVE_SOUP: moesim-all is. */
#include "base/err.h"
#include "serve/serve.h"

gboolean ms_serve_here(void) {
#ifdef MS_HAVE_SOUP
  return FALSE;
#else
  return TRUE; /* to say so */
#endif
}

gboolean ms_serve(const MsServeOptions *options, GError **error) {
  (void)options;
  return ms_error(error, MS_ERROR_ENV,
                  "serve: this moesim was built without libsoup 3 (Debian: libsoup-3.0-dev); moesim report writes "
                  "the same page to a file");
}
