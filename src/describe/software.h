/* src/describe/software.h - what the word in `software` says by itself: spelling, date, TransformerEngine.
 *
 * Names are compared as spelled: in small letters, without what stands in front of the last '/', with a dash for each
 * of ": _ @ + " and blanks, and without the v or r of a version: "nvcr.io/nvidia/pytorch:25.09-py3" is
 * "pytorch-25.09-py3", "core_r0.15.0" is "core-0.15.0". */
#ifndef MS_DESCRIBE_SOFTWARE_H
#define MS_DESCRIBE_SOFTWARE_H

#include <glib.h>

/* (transfer full) */
char *ms_software_spelled(const char *software);
/* How much of `software` is the listed name, both as spelled: its length, up to the end, a dash or a dot, or behind a
 * digit up to anything but a digit; 0: it does not begin so. */
gsize ms_software_begins(const char *software, const char *listed);
/* The end of the month that a name gives anywhere, as 2024-12, 2024.12, 20241231, 24.12 or as arXiv numbers papers,
 * 2412.01234, with its fraction; 0: none. Versions are none: years before 2016 are not read. */
double ms_software_year(const char *software);
/* The minor version of TransformerEngine 2 that a name gives, as te2.11; 1 for all that are older; 0: none. */
int ms_software_engine(const char *software);

#endif
