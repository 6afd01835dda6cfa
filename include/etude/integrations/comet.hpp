#pragma once

/// CometCallback. Its declaration is in a file of its own because its parts need it, too.
#include "etude/integrations/comet/comet_callback.hpp"

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/comet.ipp"
#endif
