/* src/launch/import.h - private to launch: from an argument list to a scenario. */
#ifndef MS_LAUNCH_IMPORT_H
#define MS_LAUNCH_IMPORT_H

#include "launch/launch.h"
#include "launch/shell.h"
#include "launch/table.h"

enum { MS_IMPORT_MOST_GPUS = 1 << 20 };
#define MS_LORA_DIM        "--lora-dim" /* Primus's lora.dim, where a rank's experts share one adapter, as here */
#define MS_IMPORT_HARDWARE "h100-sxm"   /* where neither the file nor an option says the machine */

MsImport *ms_import_new(void); /* empty; (transfer full) */
/* Adds the lines "#moesim KEY JSON" of `text` to the notes of `args`. */
gboolean ms_import_notes(MsArgs *args, const char *text, GError **error);
/* The scenario of the arguments; `gpus` as the launcher said them, 0 = it did not. Takes nothing. */
gboolean ms_import_scenario(MsImport *import, MsArgs *args, int gpus, const MsImportOptions *options, GError **error);
/* Adapters (import_lora.c) into scenario->training.lora, once the model's keys are read. */
gboolean ms_import_lora(MsImport *import, MsArgs *args, MsScenario *scenario, GError **error);
/* Compressed attention and residual streams of DeepSeek-V4 (import_compressed.c) into `found`, before the other rows
 * are read: their words leave the list or are said in others; and from there into the model that was read. */
gboolean ms_import_compressed(MsImport *import, MsArgs *args, MsModel *found, GError **error);
void ms_import_put_compressed(MsModel *found, MsModel *model);
/* What a line "#moesim KEY" says, a string; NULL: there is none. */
const char *ms_import_note(const MsArgs *args, const char *key);
/* The machine as a scenario mentions it: --hardware, else the note, else the default, which is a remark.
 * (transfer full) */
JsonNode *ms_import_hardware(MsImport *import, const MsArgs *args, const MsImportOptions *options);
/* What was not marked used, as text, into import->ignored; a likely misspelling of what was asked for is a remark. */
void ms_import_list_ignored(MsImport *import, const MsArgs *args);
void ms_import_remark(MsImport *import, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* A remark where `word`, which nothing read, is a likely misspelling of one of `asked` (char * -> any). */
void ms_import_remark_misspelt(MsImport *import, const char *where, const char *word, GHashTable *asked);
/* The remark of such a misspelling behind an error of the same file, which may be its only cause. */
void ms_import_blame_misspelt(const MsImport *import, GError **error);
/* Names of --set that nothing asked for. */
void ms_import_remark_unasked(MsImport *import, const MsShell *shell);
/* A copy with a NUL at the end, or NULL and an error when the text holds a NUL, is not UTF-8 or is above 4 MiB.
 * (transfer full) */
char *ms_import_text(const char *text, gsize length, const char *file, GError **error);

#endif
