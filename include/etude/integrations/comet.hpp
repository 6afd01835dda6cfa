#pragma once

/// CometCallback. Its declaration stands apart since the parts that it is made of need it, too.
#include "etude/integrations/comet/callback.hpp"

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/comet.ipp"
#endif
