#pragma once

/// CodeCarbonCallback. Its declaration stands apart since the parts that it is made of need it, too.
#include "etude/integrations/codecarbon/callback.hpp"

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/codecarbon.ipp"
#endif
