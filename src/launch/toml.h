/* src/launch/toml.h - private to launch: TOML as JSON, for the loader that says the line of what is wrong. */
#ifndef MS_LAUNCH_TOML_H
#define MS_LAUNCH_TOML_H

#include <glib.h>

/* JSON of a TOML document, every value on the line where it stands: {"a.b": {"key": value}} for a table [a.b]; keys
 * with dots stay as they are written. Strings of several lines, dates, numbers of other bases and arrays of tables are
 * refused with their line (MS_ERROR_INPUT), as is what is given twice. `text` ends with NUL. (transfer full) */
char *ms_toml_as_json(const char *text, const char *file, GError **error);

#endif
