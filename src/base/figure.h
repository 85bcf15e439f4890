/* src/base/figure.h - one table of figures per object that the program prints.
 *
 * A row is one figure: its key, where it comes from (a member, or a function of the object), its unit and what it
 * means. From the rows come the JSON, columns of text tables and CSV, the getters of the library, `moesim schema
 * --output` and docs/json.md: none of them lists figures a second time.
 *
 * It is not the table of describe/field.h read backwards: an input row owns its member, has a default, a range and a
 * parser, and its object is one flat struct; a result is made of lists, of maps by name, of objects that are borrowed,
 * and of figures that are worked out. They share how a value is written (base/json.h), not the row. */
#ifndef MS_BASE_FIGURE_H
#define MS_BASE_FIGURE_H

#include <stddef.h>

#include "base/json.h"
#include "base/text.h"

typedef enum {
  MS_FIGURE_F64,     /* double; NaN is null */
  MS_FIGURE_INT,     /* int */
  MS_FIGURE_UINT,    /* guint */
  MS_FIGURE_U64,     /* guint64 */
  MS_FIGURE_BOOL,    /* gboolean */
  MS_FIGURE_STRING,  /* char *; NULL is null */
  MS_FIGURE_CHARS,   /* char[] */
  MS_FIGURE_WORD,    /* int or guint8, index into `words` */
  MS_FIGURE_OBJECT,  /* described by `sub`; null, or left out when optional, where there is none */
  MS_FIGURE_MEMBERS, /* the same without a key: its rows stand in the object around it */
  MS_FIGURE_LIST,    /* elements described by `sub` */
  MS_FIGURE_MAP,     /* elements by name; without a key their names stand in the object around them */
  MS_FIGURE_FILE,    /* what `write` writes: a file as the loaders read it, or a value of one */
} MsFigureType;

enum {
  MS_FIGURE_NULLABLE = 1, /* may be null */
  MS_FIGURE_ANY_KEY = 2,  /* the key depends on the object: documented as "*", once */
};

/* An element that is no struct of its own: place `i` of what `owner` holds. */
typedef struct {
  const void *owner;
  guint i;
} MsFigureCursor;

typedef struct MsFigures MsFigures;
typedef struct MsFigure {
  const char *key; /* "" alone in a table: the element is this value itself */
  MsFigureType type;
  const char *unit; /* "s", "B", "1" (a share), "FLOP/s", ... or "" */
  const char *doc;  /* what it is; NULL for what has rows of its own */
  /* When it is printed, if not always: "options.lcma"; "" where the object around it says so; "rare: ..." where tests
   * need not meet it. An OBJECT, LIST or MAP with one is left out where there is none of it. */
  const char *only;
  size_t offset;     /* of the member */
  gboolean pointer;  /* the member points to the OBJECT, MEMBERS, LIST, MAP or FILE; NULL: there is none */
  unsigned flags;    /* MS_FIGURE_NULLABLE, ... */
  const char *title; /* heading of its column in text */
  const char *(*print)(double value, char *buf); /* in text, buf MS_TEXT long; NULL: a plain number */
  const char *const *words;                      /* WORD; names of a MAP; elements of a LIST */
  const MsFigures *sub;
  gboolean garray;         /* LIST: the member points to a GArray of elements, NULL: there are none */
  const char *const *few;  /* MEMBERS: only these of its keys, NULL-terminated */
  size_t n_offset, stride; /* LIST, MAP: of the int that counts the elements; bytes of one, of a WORD its own */
  /* Instead of the member, each given the object. */
  double (*number)(const void *object);     /* F64, INT, BOOL */
  const char *(*text)(const void *object);  /* STRING; what it returns lives as long as the object */
  const void *(*at)(const void *object);    /* OBJECT, MEMBERS, LIST, MAP, FILE; NULL: there is none */
  gboolean (*when)(const void *object);     /* FALSE: it is left out */
  const char *(*name)(const void *element); /* MAP without words */
  /* Element i, perhaps in `room`; NULL after the last; ms_figure_skip: this one is left out. */
  const void *(*item)(const void *owner, guint i, MsFigureCursor *room);
  gboolean (*keep)(const void *element);                              /* LIST: FALSE: this one is left out */
  void (*write)(const void *object, const char *key, MsJsonOut *out); /* FILE */
} MsFigure;

struct MsFigures {
  const char *name; /* of a section of docs/json.md; NULL: its rows are listed where it is used */
  const char *doc;
  const MsFigure *rows; /* ends with a row of zeros */
};

extern const char ms_figure_skip[];
/* Elements that are plain numbers; plain texts, each the place of a char *. */
extern const MsFigures ms_figure_numbers, ms_figure_texts;
const char *ms_figure_first_string(const void *element); /* `name` of elements that begin with it */
/* For `item`: place i of n in `room`, NULL beyond them; and what such a place is of. */
const void *ms_figure_place(const void *owner, guint i, guint n, MsFigureCursor *room);
#define MS_FIGURE_OWNER(S, cursor) ((const S *)((const MsFigureCursor *)(cursor))->owner)
#define MS_FIGURE_I(cursor)        (((const MsFigureCursor *)(cursor))->i)

/* --- rows: t type without its prefix, S struct, m member, k key, u unit, d sentence, then other members by name --- */
#define MS_FIGURE_HEAD(k, t, u, d) .key = k, .type = MS_FIGURE_##t, .unit = u, .doc = d
#define MS_FIGURE(t, S, m, u, d, ...) \
  { MS_FIGURE_HEAD(#m, t, u, d), .offset = offsetof(S, m), __VA_ARGS__ }
#define MS_FIGURE_AS(k, t, S, m, u, d, ...) \
  { MS_FIGURE_HEAD(k, t, u, d), .offset = offsetof(S, m), __VA_ARGS__ }
#define MS_FIGURE_OF(k, t, f, u, d, ...) \
  { MS_FIGURE_HEAD(k, t, u, d), .number = f, __VA_ARGS__ }
#define MS_FIGURE_TEXT(k, f, d, ...) \
  { MS_FIGURE_HEAD(k, STRING, "", d), .text = f, __VA_ARGS__ }
#define MS_FIGURE_WORDS(k, S, m, w, d, ...)                                                                  \
  {                                                                                                          \
    MS_FIGURE_HEAD(k, WORD, "", d), .offset = offsetof(S, m), .stride = sizeof((const S *)0)->m, .words = w, \
                                    __VA_ARGS__                                                              \
  }
#define MS_OR_NULL .flags = MS_FIGURE_NULLABLE
/* Rows with their end; a table of them; one without a name; that where it is used: its address. */
#define MS_FIGURE_ROWS(...) ((const MsFigure[]){__VA_ARGS__, {0}})
#define MS_FIGURE_TABLE(n, d, ...) \
  { .name = n, .doc = d, .rows = MS_FIGURE_ROWS(__VA_ARGS__) }
#define MS_FIGURE_UNNAMED(...) MS_FIGURE_TABLE(NULL, NULL, __VA_ARGS__)
#define MS_FIGURES(...)        (&(const MsFigures)MS_FIGURE_UNNAMED(__VA_ARGS__))
/* An object of figures of the same struct (GROUP), a struct in place (PART), what a function finds (FOUND). */
#define MS_FIGURE_GROUP(k, s, ...) \
  { .key = k, .type = MS_FIGURE_OBJECT, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_PART(k, S, m, s, ...) \
  { .key = k, .type = MS_FIGURE_OBJECT, .offset = offsetof(S, m), .sub = s, __VA_ARGS__ }
#define MS_FIGURE_FOUND(k, f, s, ...) \
  { .key = k, .type = MS_FIGURE_OBJECT, .at = f, .sub = s, __VA_ARGS__ }
/* Rows of another object among those of this one: of what a function finds, or a pointer member points to; such a
 * member as an object, or a file, of its own. */
#define MS_FIGURE_ROWS_OF(f, s, ...) \
  { .type = MS_FIGURE_MEMBERS, .at = f, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_ROWS_AT(S, m, s, ...) \
  { .type = MS_FIGURE_MEMBERS, .offset = offsetof(S, m), .pointer = TRUE, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_OBJECT_AT(k, S, m, s, ...) \
  { .key = k, .type = MS_FIGURE_OBJECT, .offset = offsetof(S, m), .pointer = TRUE, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_FILE_AT(k, S, m, w, d, ...) \
  { MS_FIGURE_HEAD(k, FILE, "", d), .offset = offsetof(S, m), .pointer = TRUE, .write = w, __VA_ARGS__ }
/* A pointer member to `n` elements (t LIST or MAP); `n` that the struct holds itself; a GArray member of T; words,
 * which end with NULL, of a member or of `w`; a double[] member by words; elements that a function finds. */
#define MS_FIGURE_ARRAY(k, t, S, m, n, s, ...)                                                              \
  {                                                                                                         \
    .key = k, .type = MS_FIGURE_##t, .offset = offsetof(S, m), .pointer = TRUE, .n_offset = offsetof(S, n), \
    .stride = sizeof *((const S *)0)->m, .sub = s, __VA_ARGS__                                              \
  }
#define MS_FIGURE_HELD(k, S, m, n, s, ...)                                                  \
  {                                                                                         \
    .key = k, .type = MS_FIGURE_LIST, .offset = offsetof(S, m), .n_offset = offsetof(S, n), \
    .stride = sizeof *((const S *)0)->m, .sub = s, __VA_ARGS__                              \
  }
#define MS_FIGURE_GARRAY(k, S, m, T, s, ...)                                                                          \
  {                                                                                                                   \
    .key = k, .type = MS_FIGURE_LIST, .offset = offsetof(S, m), .pointer = TRUE, .garray = TRUE, .stride = sizeof(T), \
    .sub = s, __VA_ARGS__                                                                                             \
  }
#define MS_FIGURE_STRV(k, S, m, s, ...) \
  { .key = k, .type = MS_FIGURE_LIST, .offset = offsetof(S, m), .pointer = TRUE, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_WORD_LIST(k, w, d) \
  { MS_FIGURE_HEAD(k, LIST, NULL, d), .words = w, .sub = &ms_figure_texts }
#define MS_FIGURE_BY_WORD(k, S, m, w, u, d, ...)                                                  \
  {                                                                                               \
    MS_FIGURE_HEAD(k, MAP, u, d), .offset = offsetof(S, m), .words = w, .stride = sizeof(double), \
                                  .sub = &ms_figure_numbers, __VA_ARGS__                          \
  }
#define MS_FIGURE_EACH(k, t, f, s, ...) \
  { .key = k, .type = MS_FIGURE_##t, .item = f, .sub = s, __VA_ARGS__ }
#define MS_FIGURE_FILE_OF(k, f, w, d, ...) \
  { MS_FIGURE_HEAD(k, FILE, "", d), .at = f, .write = w, __VA_ARGS__ }

/* --- what comes of a table --- */
void ms_figures_write(const MsFigures *table, const void *object, const char *key, MsJsonOut *out);
char *ms_figures_json(const MsFigures *table, const void *object); /* one line (transfer full) */

typedef struct {
  double number;    /* NaN where it is a text or null */
  const char *text; /* NULL where it is a number or null; borrowed from the object */
} MsFigureValue;
/* The figure at a path as in docs/json.md, "memory.stages[0].peak_B". FALSE where there is none. */
gboolean ms_figures_get(const MsFigures *table, const void *object, const char *path, MsFigureValue *value);
double ms_figures_number(const MsFigures *table, const void *object, const char *path); /* NaN where there is none */

/* Columns with the titles of these rows (NULL-terminated keys) and the cells of one object under them. */
void ms_figures_columns(const MsFigures *table, const char *const *keys, MsTable *to);
void ms_figures_cells(const MsFigures *table, const char *const *keys, const void *object, MsTable *to);
const MsFigure *ms_figures_find(const MsFigures *table, const char *key); /* never NULL: an unknown key is a bug */

/* A text with the heads of CSV columns, the cells of one object under them (NULL: empty ones) with `end` behind the
 * last, and cells of one's own: quoted where it must be; nothing where a number is not finite. */
GString *ms_figures_csv(const char *const *paths);
void ms_figures_csv_cells(const MsFigures *table, const char *const *paths, const void *object, char end, GString *out);
void ms_csv_cell_text(GString *out, const char *text, char end);
void ms_csv_cell_number(GString *out, double value, char end);

/* Sections of docs/json.md (or, as text, of `moesim schema --output`): the table and every named one that it uses and
 * `seen` (a set of names) does not hold yet. */
void ms_figures_document(const MsFigures *table, gboolean markdown, GHashTable *seen, GString *out);

#endif
