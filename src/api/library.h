/* src/api/library.h - internal to api/. */
#ifndef MS_API_LIBRARY_H
#define MS_API_LIBRARY_H

#include "api/moesim.h"
#include <glib.h>
#include <locale.h>

/* Begins the work of a call, ends with it: this thread writes numbers with a point, whatever the locale of the program;
 * before the first of the process also what is done once. */
typedef locale_t MsApiCall;
MsApiCall ms_api_start(void);
void ms_api_end(MsApiCall call);
G_DEFINE_AUTO_CLEANUP_FREE_FUNC(MsApiCall, ms_api_end, (locale_t)0)
#define MS_API_CALL g_auto(MsApiCall) api_call G_GNUC_UNUSED = ms_api_start()
/* FALSE and an MS_ERROR_USAGE where there is no such fidelity. */
gboolean ms_api_has_fidelity(moesim_fidelity fidelity, GError **error);
GError *ms_api_missing(const char *what); /* an argument that is NULL */

#endif
