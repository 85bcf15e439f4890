/* src/describe/cp_comm.h - the kinds of communication of context parallelism, one row each, from cp_comm.def. */
#ifndef MS_DESCRIBE_CP_COMM_H
#define MS_DESCRIBE_CP_COMM_H

#include <glib.h>

typedef enum {
#define CP_COMM(id, ...) MS_CP_##id,
#include "describe/cp_comm.def"
#undef CP_COMM
  MS_N_CP_COMMS
} MsCpComm;
extern const char *const ms_cp_comm_words[]; /* of the rows, NULL-terminated */

/* Ranks that exchange heads, all or those of a scale-up domain (MsLayout.cp_inner), hold the tokens of all of them for
 * their share of the heads. */
typedef enum { MS_CP_HEADS_STAY, MS_CP_HEADS_AMONG_ALL, MS_CP_HEADS_INSIDE } MsCpHeads;

/* How a rank sees the keys and values of the tokens that are not here after that. */
typedef enum { MS_CP_KEYS_STAY /* all are */, MS_CP_KEYS_GO_ROUND, MS_CP_KEYS_ARE_GATHERED } MsCpKeys;

typedef struct {
  const char *word, *about;
  MsCpHeads heads;
  MsCpKeys keys;
  const char *spelling;
} MsCpCommRow;
extern const MsCpCommRow ms_cp_comm_rows[]; /* [MS_N_CP_COMMS] */

static inline const MsCpCommRow *ms_cp_comm_row(MsCpComm type) { return &ms_cp_comm_rows[type]; }

#endif
