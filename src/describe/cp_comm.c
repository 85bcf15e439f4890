/* src/describe/cp_comm.c - the rows of cp_comm.def. */
#include "describe/cp_comm.h"

#define CP_COMM(id, ...) _Static_assert(sizeof #id > 1, "a kind without an id");
#include "describe/cp_comm.def"
#undef CP_COMM

/* Which columns go together: what work/attention.c has rows for. */
#define CP_COMM(id, word, about, heads, keys, spelling)                                          \
  _Static_assert(((heads) == MS_CP_HEADS_AMONG_ALL) == ((keys) == MS_CP_KEYS_STAY),              \
                 word ": all tokens are here where all ranks exchange heads, and nowhere else"); \
  _Static_assert((heads) != MS_CP_HEADS_INSIDE || (keys) == MS_CP_KEYS_GO_ROUND,                 \
                 word ": keys of other domains go round");
#include "describe/cp_comm.def"
#undef CP_COMM

/* Parentheses: an empty column is an error, wherever it stands. */
const MsCpCommRow ms_cp_comm_rows[] = {
#define CP_COMM(id, word, about, heads, keys, spelling) {(word), (about), (heads), (keys), (spelling)},
#include "describe/cp_comm.def"
#undef CP_COMM
};

const char *const ms_cp_comm_words[] = {
#define CP_COMM(id, word, ...) word,
#include "describe/cp_comm.def"
#undef CP_COMM
    NULL};
