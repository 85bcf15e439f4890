/* src/api/library.h - internal to api/. */
#ifndef MS_API_LIBRARY_H
#define MS_API_LIBRARY_H

#include "api/moesim.h"
#include <glib.h>

/* Before the first work of the process; again does nothing. */
void ms_api_start(void);
/* FALSE and an MS_ERROR_USAGE where there is no such fidelity. */
gboolean ms_api_has_fidelity(moesim_fidelity fidelity, GError **error);
GError *ms_api_missing(const char *what); /* an argument that is NULL */

#endif
