/* src/logs/kernels.h - what a GPU kernel is, by its name: software/kernels.json.
 *
 * A class is what predictions are compared by ("gemm", "dispatch"); it names the operators of describe/op.def that it
 * covers. A family is a library's way of naming kernels of one class. */
#ifndef MS_LOGS_KERNELS_H
#define MS_LOGS_KERNELS_H

#include "describe/field.h"

typedef struct {
  char *word, *doc;
  JsonNode *ops; /* words of operators */
} MsKernelClass;

typedef struct {
  char *name, *class_word;
  int class_index;
  GPtrArray *patterns; /* GPatternSpec * */
} MsKernelFamily;

typedef struct {
  GArray *classes;  /* MsKernelClass */
  GArray *families; /* MsKernelFamily, in the order of the file */
} MsKernelTable;

extern const MsFieldTable ms_kernel_class_table, ms_kernel_family_table; /* keys of the file */

/* NULL and *error when the file is missing or wrong. (transfer full) */
MsKernelTable *ms_kernel_table_load(GError **error);
void ms_kernel_table_free(MsKernelTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsKernelTable, ms_kernel_table_free)

/* The first family that knows a kernel of this name, -1: none does. `collective`: what the profiler calls the
 * collective that it is, or NULL. */
int ms_kernel_family(const MsKernelTable *table, const char *name, const char *collective);
/* The class that covers an operator of describe/op.def, -1: none. */
int ms_kernel_class_of_op(const MsKernelTable *table, const char *op);
const char *ms_kernel_class_word(const MsKernelTable *table, int index);

#endif
