/* src/api/library.h - internal to api/. */
#ifndef MS_API_LIBRARY_H
#define MS_API_LIBRARY_H

/* Before the first work of the process; again does nothing. */
void ms_api_start(void);

#endif
