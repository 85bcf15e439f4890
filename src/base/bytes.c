#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/err.h"

enum { ROOM = 1 << 16, GZIP_ONLY = 16 + MAX_WBITS };

struct MsBytes {
  char *filename;
  int file; /* -1: of memory */
  const char *memory;
  gsize left;               /* of it */
  gboolean begun, zipped;   /* it was looked at; it is gzip */
  gboolean dry, whole, cut; /* there are no more packed bytes; the last member ended; it ended within one */
  z_stream zip;             /* of gzip */
  gsize at, end;            /* of `buffer`: still to come */
  char buffer[ROOM];
};

static MsBytes *bytes_new(const char *filename, int file) {
  MsBytes *b = g_new(MsBytes, 1);
  memset(b, 0, offsetof(MsBytes, buffer));
  b->filename = g_strdup(filename), b->file = file;
  return b;
}

MsBytes *ms_bytes_open(const char *filename, GError **error) {
  int file = open(strcmp(filename, "-") == 0 ? "/dev/stdin" : filename, O_RDONLY | O_CLOEXEC);
  if (file >= 0) return bytes_new(filename, file);
  g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: cannot be read: %s", filename, g_strerror(errno));
  return NULL;
}

MsBytes *ms_bytes_of(const char *bytes, gsize length, const char *filename) {
  MsBytes *b = bytes_new(filename, -1);
  b->memory = bytes, b->left = length;
  return b;
}

void ms_bytes_close(MsBytes *b) {
  if (!b) return;
  if (b->zipped) inflateEnd(&b->zip);
  if (b->file >= 0) close(b->file);
  g_free(b->filename);
  g_free(b);
}

gboolean ms_bytes_cut(const MsBytes *b) { return b->cut; }

/* As they are in the file. */
static gssize read_raw(MsBytes *b, char *to, gsize most, GError **error) {
  if (b->file < 0) {
    gsize n = MIN(most, b->left);
    if (n > 0) memcpy(to, b->memory, n);
    b->memory += n, b->left -= n;
    return (gssize)n;
  }
  gssize n;
  do n = read(b->file, to, most);
  while (n < 0 && errno == EINTR);
  if (n < 0) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: cannot be read: %s", b->filename, g_strerror(errno));
  return n;
}

/* Until the buffer has two bytes, or there are no more. */
static gboolean fill(MsBytes *b, GError **error) {
  memmove(b->buffer, b->buffer + b->at, b->end - b->at);
  b->end -= b->at, b->at = 0;
  while (b->end < 2 && !b->dry) {
    gssize n = read_raw(b, b->buffer + b->end, ROOM - b->end, error);
    if (n < 0) return FALSE;
    b->end += (gsize)n, b->dry = n == 0;
  }
  return TRUE;
}

static gboolean at_gzip(const MsBytes *b) {
  const guchar *next = (const guchar *)b->buffer + b->at;
  return b->end - b->at >= 2 && next[0] == 0x1f && next[1] == 0x8b;
}

static gboolean begin(MsBytes *b, GError **error) {
  if (!fill(b, error)) return FALSE;
  b->begun = TRUE, b->zipped = at_gzip(b);
  if (b->zipped && inflateInit2(&b->zip, GZIP_ONLY) != Z_OK) MS_BUG("zlib does not start");
  return TRUE;
}

/* Behind a member. What is none (zeros of a tape) is left out, as gzip does. */
static gboolean begin_member(MsBytes *b, GError **error) {
  if (!fill(b, error)) return FALSE;
  b->whole = !at_gzip(b);
  inflateReset(&b->zip);
  return TRUE;
}

/* What zlib takes of the buffer; its status. */
static int inflate_some(MsBytes *b, char *to, gsize most, gsize *made) {
  b->zip.next_in = (const guchar *)b->buffer + b->at, b->zip.avail_in = (uInt)(b->end - b->at);
  b->zip.next_out = (guchar *)to, b->zip.avail_out = (uInt)most;
  int status = inflate(&b->zip, Z_NO_FLUSH);
  b->at = b->end - b->zip.avail_in;
  *made = most - b->zip.avail_out;
  return status;
}

static gssize unpack(MsBytes *b, char *to, gsize most, GError **error) {
  while (!b->whole && !b->cut) {
    gsize made;
    if (b->at == b->end && !fill(b, error)) return -1;
    int status = inflate_some(b, to, most, &made);
    if (status == Z_STREAM_END && !begin_member(b, error)) return -1;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      return ms_input_error(error, b->filename, 0, NULL, "damaged gzip data: %s", b->zip.msg ? b->zip.msg : "zlib"), -1;
    if (made > 0) return (gssize)made;
    b->cut = status != Z_STREAM_END && b->dry && b->at == b->end;
  }
  return 0;
}

gssize ms_bytes_read(MsBytes *b, char *to, gsize most, GError **error) {
  if (!b->begun && !begin(b, error)) return -1;
  if (b->zipped) return unpack(b, to, MIN(most, 1 << 30), error);
  gsize n = MIN(most, b->end - b->at);
  if (n == 0) return read_raw(b, to, most, error);
  memcpy(to, b->buffer + b->at, n);
  b->at += n;
  return (gssize)n;
}
