/* The shipped what-if studies and what scenarios/whatif/README.md and scenarios/tour/README.md say of them: every
 * figure there stands before <!--STUDY | POINT | COLUMN--> and must be the cell that `moesim whatif` prints. `make
 * studies-update` (this program with --update) writes the figures anew; the prose is for people to check. */
#include "lib/close.h"

#include "base/io.h"
#include "lib/world.h"
#include "report/report.h"

#include <string.h>

static const struct {
  const char *folder;
  guint studies;
  int figures;
} shelves[] = {{"scenarios/whatif", 12, 40}, {"scenarios/tour", 26, 90}};

static GHashTable *tables; /* study -> what the command prints */

static const char *table_of(const char *folder, const char *study) {
  g_autofree char *key = g_build_filename(folder, study, NULL);
  char *text = g_hash_table_lookup(tables, key);
  if (text) return text;
  g_autofree char *file = g_strdup_printf("%s/%s.json", folder, study);
  GError *error = NULL;
  const MsWhatifOptions options = {0};
  MsWhatif *whatif = ms_whatif_load(file, &error);
  g_autoptr(MsWhatifRun) run = whatif ? ms_whatif_run(whatif, &options, &error) : NULL;
  if (!run) fail_msg("%s: %s", file, error->message);
  text = ms_report_whatif(run, 0);
  g_hash_table_insert(tables, g_steal_pointer(&key), text);
  return text;
}

/* What stands in columns from `from` to before `to`. (transfer full) */
static char *between(const char *line, glong from, glong to) {
  const glong length = g_utf8_strlen(line, -1);
  return g_strstrip(g_utf8_substring(line, MIN(from, length), MIN(to, length)));
}

/* Below titles of two lines, which end where the cells do; columns may be one blank apart. NULL: there is none.
 * (transfer full) */
static char *cell_below(const char *upper, const char *title, const char *line, const char *column) {
  for (glong from = (glong)strlen("  point"), to; title[from]; from = to) {
    to = from + (glong)strspn(title + from, " ");
    to += (glong)strcspn(title + to, " ");
    g_autofree char *above = between(upper, from, to), *below = between(title, from, to),
                    *both = g_strconcat(above, below, NULL);
    if (g_str_equal(both, column)) return between(line, from, to);
  }
  return NULL;
}

/* A line of a table and those that it goes on in, as cells: columns are at least two blanks apart. */
static GStrv cells_of(char **line) {
  g_autoptr(GString) all = g_string_new(line[0]);
  for (int k = 1; line[k] && g_str_has_prefix(line[k], "      "); k++) g_string_append(all, line[k]);
  return g_regex_split_simple(" {2,}", all->str + strspn(all->str, " "), 0, 0);
}

/* The same below titles of one line. (transfer full) */
static char *cell_beside(char **title, char **line, const char *column) {
  g_auto(GStrv) titles = cells_of(title), cells = cells_of(line);
  for (int c = 1; titles[c] && cells[c]; c++)
    if (g_str_equal(titles[c], column)) return g_strdup(cells[c]);
  return NULL;
}

static char *cell_of(const char *folder, const char *study, const char *point, const char *column) {
  g_auto(GStrv) line = g_strsplit(table_of(folder, study), "\n", -1);
  g_autofree char *begin = g_strdup_printf("  %s ", point);
  for (int i = 1, title = 0; line[i]; i++) {
    if (g_str_has_prefix(line[i], "  point ")) title = i;
    if (title == 0 || i == title || !g_str_has_prefix(line[i], begin)) continue;
    char *cell = g_str_has_prefix(line[title - 1], "      ") ? cell_below(line[title - 1], line[title], line[i], column)
                                                             : cell_beside(line + title, line + i, column);
    if (cell) return cell;
  }
  fail_msg("%s/README.md: %s | %s | %s is no cell of what the study prints", folder, study, point, column);
  return NULL;
}

/* The README with every figure from today's output; *figures of them, *wrong that differ. */
static char *with_figures(const char *folder, const char *text, int *figures, int *wrong) {
  g_autoptr(GRegex) regex = g_regex_new("`([^`]*)`<!--([^|>]*) \\| ([^|>]*) \\| ([^|>]*)-->", 0, 0, NULL);
  g_autoptr(GMatchInfo) match = NULL;
  GString *out = g_string_new(NULL);
  int at = 0;
  *figures = *wrong = 0;
  for (g_regex_match(regex, text, 0, &match); g_match_info_matches(match); g_match_info_next(match, NULL)) {
    int from, to;
    g_match_info_fetch_pos(match, 1, &from, &to);
    g_autofree char *is = g_match_info_fetch(match, 1), *study = g_match_info_fetch(match, 2),
                    *point = g_match_info_fetch(match, 3), *column = g_match_info_fetch(match, 4);
    g_autofree char *cell = cell_of(folder, study, point, column);
    ++*figures;
    if (!g_str_equal(cell, is)) {
      print_error("%s/README.md: %s | %s | %s is %s, the study prints %s (make studies-update)\n", folder, study, point,
                  column, is, cell);
      ++*wrong;
    }
    g_string_append_len(out, text + at, from - at);
    g_string_append(out, cell);
    at = to;
  }
  g_string_append(out, text + at);
  return g_string_free(out, FALSE);
}

/* Names of the studies of a folder; runs that studies start from stand beside them. */
static GPtrArray *studies_of(const char *folder) {
  g_autoptr(GPtrArray) files = ms_test_files(folder);
  GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
  for (guint i = 0; i < files->len; i++) {
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(files->pdata[i], &text, NULL, NULL));
    if (!strstr(text, "\"axes\"")) continue;
    char *name = g_path_get_basename(files->pdata[i]);
    *strrchr(name, '.') = 0;
    g_ptr_array_add(names, name);
  }
  return names;
}

static char *readme_of(const char *folder) { return g_build_filename(folder, "README.md", NULL); }

static void every_study_runs(void **state) {
  (void)state;
  for (guint k = 0; k < G_N_ELEMENTS(shelves); k++) {
    g_autoptr(GPtrArray) names = studies_of(shelves[k].folder);
    assert_true(names->len >= shelves[k].studies);
    for (guint i = 0; i < names->len; i++)
      assert_non_null(strstr(table_of(shelves[k].folder, names->pdata[i]), "\n  base "));
  }
}

static void the_readme_says_what_they_print(void **state) {
  (void)state;
  for (guint k = 0; k < G_N_ELEMENTS(shelves); k++) {
    g_autofree char *readme = readme_of(shelves[k].folder), *text = NULL;
    assert_true(g_file_get_contents(readme, &text, NULL, NULL));
    int figures, wrong;
    g_autofree char *now = with_figures(shelves[k].folder, text, &figures, &wrong);
    assert_true(figures >= shelves[k].figures);
    assert_int_equal(wrong, 0);
    g_autoptr(GPtrArray) names = studies_of(shelves[k].folder);
    for (guint i = 0; i < names->len; i++) {
      g_autofree char *link = g_strdup_printf("](%s.json)", (char *)names->pdata[i]);
      if (!strstr(text, link)) fail_msg("%s has no section on %s", readme, (char *)names->pdata[i]);
    }
  }
}

static void update(const char *folder) {
  g_autofree char *readme = readme_of(folder), *text = NULL;
  GError *error = NULL;
  if (!g_file_get_contents(readme, &text, NULL, &error)) g_error("%s", error->message);
  int figures, wrong;
  g_autofree char *now = with_figures(folder, text, &figures, &wrong);
  if (!ms_write_file(readme, now, -1, &error)) g_error("%s", error->message);
  g_print("%s: %d figures, %d changed\n", readme, figures, wrong);
}

int main(int argc, char **argv) {
  tables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  int status = 0;
  if (argc > 1 && g_str_equal(argv[1], "--update")) {
    for (guint k = 0; k < G_N_ELEMENTS(shelves); k++) update(shelves[k].folder);
  } else {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_study_runs),
                                       cmocka_unit_test(the_readme_says_what_they_print)};
    status = cmocka_run_group_tests(tests, NULL, NULL);
  }
  g_hash_table_unref(tables);
  return status;
}
