#pragma once

#ifndef ETUDE_COMET
#error "etude/integrations/comet.hpp needs a library: link etude::comet"
#endif

/// CometCallback. Its declaration is in a file of its own because its parts need it, too.
#include "etude/integrations/comet/comet_callback.hpp"
