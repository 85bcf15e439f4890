/* Models, machines, laws and stacks that are kept are those that the files describe: the first load reads, the second
 * finds. */
#include "lib/close.h"

#include "base/kept.h"
#include "describe/scenario.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

static char *text_of(const char *file) {
  GError *error = NULL;
  g_autoptr(MsHardware) h = ms_hardware_load(file, &error);
  if (!h) fail_msg("%s: %s", file, error->message);
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_fields_write(&ms_hardware_table, h, TRUE, out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static void machines_stay_as_they_are(void **state) {
  (void)state;
  /* its own curves; borrowed ones; upon a base; the same again in another order, donors before borrowers */
  static const char *const names[] = {"h800-sxm", "h100-sxm", "ascend-910c", "gb200-nvl36", "a100-pcie-80g"};
  char *first[G_N_ELEMENTS(names)];
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) first[i] = text_of(names[i]);
  for (guint k = 3 * G_N_ELEMENTS(names); k-- > 0;) { /* from its file, from what is kept of it, and of its donor */
    guint i = k % G_N_ELEMENTS(names);
    g_autofree char *again = text_of(names[i]);
    assert_string_equal(first[i], again);
    if (k < G_N_ELEMENTS(names)) g_free(first[i]);
  }
}

/* What a caller changes is his own. */
static void changes_do_not_last(void **state) {
  (void)state;
  g_autofree char *before = text_of("h100-sxm");
  g_autoptr(MsHardware) h = ms_hardware_load("h100-sxm", NULL);
  ms_hardware_scale(h, "nic_Bps", 0.5);
  MsCurve *curves = ms_curves_own(h, 0);
  for (int i = 0; i < h->num_curves; i++) curves[i].param[0] += 1;
  g_autofree char *after = text_of("h100-sxm");
  assert_string_equal(before, after);
}

static void another_file_under_the_same_name(void **state) {
  (void)state;
  g_autofree char *folder = g_dir_make_tmp("moesim-kept-XXXXXX", NULL),
                  *link = g_build_filename(folder, "mine.json", NULL);
  static const char *const files[] = {MS_SOURCE_DIR "/hardware/h100-sxm.json", MS_SOURCE_DIR "/hardware/h20-sxm.json"};
  for (int round = 0; round < 4; round++) {
    g_autofree char *direct = text_of(files[round % 2]);
    assert_int_equal(symlink(files[round % 2], link), 0);
    g_autofree char *linked = text_of(link);
    assert_string_equal(linked, direct);
    g_unlink(link);
  }
  g_rmdir(folder);
}

/* What a machine borrows is that of the donor's file as it is now. */
static void another_donor_under_the_same_name(void **state) {
  (void)state;
  static const char *const donors[] = {MS_SOURCE_DIR "/hardware/h100-sxm.json",
                                       MS_SOURCE_DIR "/hardware/h200-sxm.json"};
  g_autofree char *folder = g_dir_make_tmp("moesim-kept-XXXXXX", NULL),
                  *hardware = g_build_filename(folder, "hardware", NULL),
                  *borrower = g_build_filename(hardware, "h20-sxm.json", NULL),
                  *donor = g_build_filename(hardware, "h100-sxm.json", NULL);
  char *first[2] = {NULL};
  assert_int_equal(g_mkdir(hardware, 0700), 0);
  assert_int_equal(symlink(MS_SOURCE_DIR "/hardware/h20-sxm.json", borrower), 0);
  g_setenv("MOESIM_DATA", folder, TRUE);
  for (int round = 0; round < 6; round++) {
    assert_int_equal(symlink(donors[round / 2 % 2], donor), 0);
    g_autofree char *text = text_of(borrower);
    if (!first[round / 2 % 2]) first[round / 2 % 2] = g_strdup(text);
    assert_string_equal(text, first[round / 2 % 2]);
    g_unlink(donor);
  }
  assert_string_not_equal(first[0], first[1]);
  g_unsetenv("MOESIM_DATA");
  g_free(first[0]), g_free(first[1]);
  g_unlink(borrower), g_rmdir(hardware), g_rmdir(folder);
}

/* A file that was just written is read again, whatever its times and its size say. */
static void a_fresh_file_is_not_kept(void **state) {
  (void)state;
  static MsKeep kept;
  MsStamp stamp;
  g_autofree char *folder = g_dir_make_tmp("moesim-kept-XXXXXX", NULL), *file = g_build_filename(folder, "f", NULL);
  assert_true(g_file_set_contents(file, "1", -1, NULL));
  assert_null(ms_kept_find(&kept, file, "", &stamp));
  assert_false(stamp.known);
  int *value = g_atomic_rc_box_new0(int);
  ms_kept_add(&kept, file, "", &stamp, value);
  assert_null(ms_kept_find(&kept, file, "", &stamp));
  ms_kept_release(&kept, value);
  g_unlink(file);
  g_rmdir(folder);
  assert_null(ms_kept_find(&kept, file, "", &stamp));
}

static void values_by_file_and_word(void **state) {
  (void)state;
  static MsKeep kept;
  MsStamp stamp;
  const char *file = MS_SOURCE_DIR "/hardware/h100-sxm.json";
  assert_null(ms_kept_find(&kept, file, "one", &stamp));
  int *value = g_atomic_rc_box_new0(int), *found;
  *value = 7;
  ms_kept_add(&kept, file, "one", &stamp, value);
  ms_kept_release(&kept, value);
  assert_null(ms_kept_find(&kept, file, "two", &stamp));
  assert_non_null(found = ms_kept_find(&kept, file, "one", &stamp));
  assert_int_equal(*found, 7);
  for (int i = 0; i < 200; i++) { /* more than are kept: the oldest may go, what is held stays valid */
    g_autofree char *word = g_strdup_printf("%d", i);
    value = g_atomic_rc_box_new0(int);
    ms_kept_add(&kept, file, word, &stamp, value);
    ms_kept_release(&kept, value);
  }
  assert_int_equal(*found, 7);
  ms_kept_release(&kept, found);
}

static GByteArray *key_of(int number) {
  return g_byte_array_append(g_byte_array_new(), (const guint8 *)&number, (guint)sizeof number);
}

static void add_number(MsKeep *kept, int number) {
  int *value = g_atomic_rc_box_new(int);
  *value = number;
  ms_kept_as(kept, key_of(number), value);
  ms_kept_release(kept, value);
}

static gboolean has_number(MsKeep *kept, int number) {
  g_autoptr(GByteArray) key = key_of(number);
  int *found = ms_kept_of(kept, key);
  if (!found) return FALSE;
  assert_int_equal(*found, number);
  ms_kept_release(kept, found);
  return TRUE;
}

/* What is asked for stays, what is not goes when there is twice as much. */
static void values_by_bytes(void **state) {
  (void)state;
  static MsKeep kept = {.most = 8};
  assert_false(has_number(&kept, 0));
  for (int i = 0; i < 50; i++) {
    add_number(&kept, i);
    assert_true(has_number(&kept, i));
    assert_true(has_number(&kept, 0));
    assert_int_equal(i > 40 && has_number(&kept, i - 40), FALSE);
    assert_int_equal(i > 3 && !has_number(&kept, i - 3), FALSE);
  }
  ms_kept_allow(FALSE);
  assert_false(has_number(&kept, 0));
  ms_kept_allow(TRUE);
  assert_true(has_number(&kept, 0));
}

static gsize size_of_number(gconstpointer value) { return (gsize) * (const int *)value; }

/* A large one makes room for itself. */
static void values_by_size(void **state) {
  (void)state;
  static MsKeep kept = {.most = 100, .size = size_of_number};
  for (int i = 1; i <= 9; i++) add_number(&kept, i);
  for (int i = 1; i <= 9; i++) assert_true(has_number(&kept, i));
  add_number(&kept, 60), add_number(&kept, 90);
  assert_true(has_number(&kept, 60) && has_number(&kept, 90));
  assert_false(has_number(&kept, 1));
  add_number(&kept, 10);
  assert_true(has_number(&kept, 90) && has_number(&kept, 10));
}

static gpointer load_many(gpointer expected) {
  for (int i = 0; i < 20; i++) {
    g_autofree char *text = text_of("h800-sxm");
    assert_string_equal(text, (const char *)expected);
  }
  return NULL;
}

static void threads_share_them(void **state) {
  (void)state;
  g_autofree char *expected = text_of("h800-sxm");
  GThread *thread[3];
  for (guint i = 0; i < G_N_ELEMENTS(thread); i++) thread[i] = g_thread_new("load", load_many, expected);
  for (guint i = 0; i < G_N_ELEMENTS(thread); i++) g_thread_join(thread[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(machines_stay_as_they_are),
      cmocka_unit_test(changes_do_not_last),
      cmocka_unit_test(another_file_under_the_same_name),
      cmocka_unit_test(a_fresh_file_is_not_kept),
      cmocka_unit_test(values_by_file_and_word),
      cmocka_unit_test(values_by_bytes),
      cmocka_unit_test(values_by_size),
      cmocka_unit_test(threads_share_them),
      cmocka_unit_test(another_donor_under_the_same_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
