/* src/launch/mention.h - private to launch: models that look alike. */
#ifndef MS_LAUNCH_MENTION_H
#define MS_LAUNCH_MENTION_H

#include "describe/model.h"

/* Same width, heads and experts: worth comparing key by key. */
gboolean ms_model_is_near(const MsModel *a, const MsModel *b);

#endif
